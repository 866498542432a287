"""Sessions whose history the upstream keeps: found by what a request goes on from, and reserved for with all that will be read."""

import pytest

from proxy.chains import Delivered
from proxy.models import ToolCall
from proxy.policy import Budgets, Policy
from tests.sessions import World, calls

LS = ToolCall("c1", "ls", "{}")
USER = {"role": "user", "content": "go"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "a.txt"}


@pytest.mark.parametrize("name", [None, "build-7"])
async def test_a_session_is_found_by_the_response_it_goes_on_from(name: str | None) -> None:
    """Its calls are known though the request holds only their results."""
    world = World()
    one = await world.open_kept(USER, name=name)
    await world.commit(one, calls(LS), given=Delivered("resp_1", calls(LS), 13))
    later = await world.open_kept(OUTPUT, name=name, previous_response_id="resp_1")

    assert later.key == one.key
    assert [[entry.name for entry in step.calls] for step in later.place.trail.steps] == [["ls"]]


async def test_a_response_that_nobody_gave_begins_a_session() -> None:
    """So does one whose answer did not get through."""
    world = World()
    one = await world.open_kept(USER)
    await world.commit(one, calls(LS), given=Delivered("resp_1", calls(LS)), full=False)
    later = await world.open_kept(OUTPUT, previous_response_id="resp_1")

    assert later.key != one.key
    assert later.history.remembered == 0


@pytest.mark.parametrize(("tokens", "reserved"), [(None, 0), (100_000, 50_000)])
async def test_what_the_upstream_will_read_is_reserved(tokens: int | None, reserved: int) -> None:
    """Once it is known how much that is, and only where tokens are limited; the steps stay right."""
    world = World()
    policy = Policy(budgets=Budgets(steps=9, tokens=tokens))
    one = await world.open_kept(USER, policy=policy, max_output_tokens=100)
    await world.commit(one, calls(LS), given=Delivered("resp_1", calls(LS), 50_000))
    later = await world.open_kept(OUTPUT, policy=policy, max_output_tokens=100, previous_response_id="resp_1")

    assert later.history.tokens == 50_000
    assert later.opened is not None
    assert later.opened.step == 2
    assert (later.opened.ledger.reserved_tokens >= reserved) if reserved else True
    assert later.opened.ledger.reserved_steps == 1
