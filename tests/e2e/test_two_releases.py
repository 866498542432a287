"""A rolling upgrade: replicas of two releases on one Redis, a session that changes sides with every request, and no verdict changed."""

import itertools
from pathlib import Path

import aiohttp
import msgspec
import pytest
import redis

from proxy.state import Lane, Record
from tests.agents import Agent
from tests.releases import releases
from tests.upstreams import Upstream

LANES, KEPT = Record.__struct_fields__.index("lanes"), Lane.__struct_fields__.index("kept")


def counted(redis_url: str) -> list[list[int]]:
    """Of each record that has more than this release knows: how often the other one wrote its lane, and the first call of that."""
    with redis.Redis.from_url(redis_url) as client:
        found = [client.hget(key, "record") for key in client.keys("lastcall:*:ledger")]
    lanes = [msgspec.msgpack.decode(record)[LANES][0] for record in found if record is not None]
    ours = len(Lane.__struct_fields__)
    return [[lane[ours], lane[KEPT][0][0][-1]] for lane in lanes if len(lane) > ours]


@pytest.mark.parametrize(
    "names", [("this", "appends"), ("this", "reads both"), ("reads both", "begins the second")], ids=["minor", "step one", "step two"]
)
async def test_a_session_that_changes_sides_gets_the_verdicts_of_one_release(
    upstream: Upstream, http: aiohttp.ClientSession, redis_url: str, tmp_path: Path, names: tuple[str, str]
) -> None:
    """Nudged once, stopped in place of the fifth call, and stopped for good; also the second run, which remembers why the first ended."""
    with releases(tmp_path, upstream.url, redis_url, names) as replicas:
        sides = itertools.cycle(reversed(names))
        agent = Agent(http, lambda: replicas.v1(next(sides)), headers={"x-lastcall-session": f"upgraded to what {names[1]}"})
        turns = await agent.run()
        asked = len(upstream.asked)
        agent.messages.pop()
        again = [await agent.ask(), await agent.ask()]
        assert len(upstream.asked) == asked
        agent.take(again[-1])
        agent.say("Go on with b.txt then, please.")
        later = await agent.run()

    assert [turn.action for turn in turns[:4]] == ["allow", "allow", "allow", "nudge"]
    assert [bool(turn.calls) for turn in turns] == [True, True, True, True, False]
    assert turns[-1].text.startswith("[lastcall stop]")
    assert [request.nudges for request in upstream.asked[:6]] == [0, 0, 0, 1, 1, 1]
    assert [(turn.action, bool(turn.calls)) for turn in again] == [("stop", False)] * 2
    assert [bool(turn.calls) for turn in later] == [True, True, False]
    assert [turn.headers["x-lastcall-step"] for turn in turns] == ["1", "2", "3", "4", "5"]
    if names[1] == "appends":
        assert counted(redis_url) == [[5, 4]]  # at each of its five commits, the call from the second on
