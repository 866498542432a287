"""A client that leaves is noticed once, and never confused with one that stays or has had its answer: on any server, and on our own."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from proxy.client import Client, ClientGone
from tests.cycles import client_on, cycle_of
from tests.in_process import Conversation


def client_of(conversation: Conversation) -> Client:
    return Client({"headers": []}, conversation.receive, conversation.send)


async def serve_for_ever(client: Client) -> None:
    with client:
        await asyncio.Event().wait()


@dataclass
class Served:
    """A client whose body was read. leave: what happens when it does, and turns: in how many of the loop's that is noticed."""

    client: Client
    leave: Callable[[], None]
    turns: int


@pytest.fixture(params=["asgi", "lastcall"])
async def served(request: pytest.FixtureRequest) -> Served:
    """By any server, and by Lastcall's own."""
    if request.param == "asgi":
        conversation = Conversation()
        one = Served(client_of(conversation), conversation.gone.set, 1)
    else:
        cycle, _, _ = cycle_of()
        cycle.complete()
        one = Served(client_on(cycle), cycle.lose, 0)
    assert await one.client.body(10) == b""
    return one


async def test_a_client_that_had_left_before_the_block_is_noticed_once_it_lasts(served: Served) -> None:
    """Within a moment, without any further sign of it."""
    client = served.client
    served.leave()

    with pytest.raises(ClientGone), client:
        await asyncio.Event().wait()


async def test_a_block_that_awaits_nothing_is_no_matter_to_who_had_left(served: Served) -> None:
    """Nor is what comes behind it: it must not be cancelled in its place."""
    served.leave()
    with served.client as client:
        pass
    for _ in range(3):
        await asyncio.sleep(0)

    assert not client.gone
    assert current().cancelling() == 0


async def test_a_block_ends_when_the_client_leaves(served: Served) -> None:
    """What the block awaits is cancelled, and the block raises `ClientGone`; the task itself is not cancelled."""
    client = served.client

    with pytest.raises(ClientGone), client:
        served.leave()
        await asyncio.Event().wait()

    assert client.gone
    assert current().cancelling() == 0
    await asyncio.sleep(0)


async def test_a_block_that_the_client_stays_through_just_ends(served: Served) -> None:
    """And nothing keeps on watching."""
    client = served.client

    with client:
        await client.whole(200, [], b"ok")

    served.leave()
    for _ in range(3):
        await asyncio.sleep(0)
    assert not client.gone
    assert client.ended


async def test_a_server_that_reports_the_end_of_a_whole_response_reports_no_disconnect(served: Served) -> None:
    """Servers say `http.disconnect` after a complete response as well."""
    client = served.client

    with client:
        await client.start(200, [])
        await client.write(b"", more=False)
        for _ in range(3):
            await asyncio.sleep(0)

    assert not client.gone


async def test_leaving_between_two_pieces_of_a_response_is_leaving() -> None:
    """A response under way is not complete."""
    conversation = Conversation()
    client = client_of(conversation)
    await client.body(10)

    with pytest.raises(ClientGone), client:
        await client.start(200, [])
        await client.write(b"half")
        conversation.gone.set()
        await asyncio.Event().wait()

    assert [message["type"] for message in conversation.sent] == ["http.response.start", "http.response.body"]


async def test_leaving_in_the_same_turn_as_the_awaited_thing_is_noticed(served: Served) -> None:
    """The cancellation arrives at the await that was about to return."""
    client = served.client
    ready = asyncio.Event()

    with pytest.raises(ClientGone), client:
        await asyncio.sleep(0)
        served.leave()
        ready.set()
        await asyncio.sleep(0)
        await ready.wait()
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    assert current().cancelling() == 0


async def test_what_is_left_of_the_body_is_no_disconnect() -> None:
    """A response may begin before the body was read to its end."""
    conversation = Conversation((b"a", b"b", b"c"))
    client = client_of(conversation)

    with client:
        for _ in range(5):
            await asyncio.sleep(0)

    assert not client.gone


async def test_who_leaves_behind_half_a_body_is_noticed() -> None:
    """Also where more of it has come than is read on before somebody takes it."""
    cycle, transport, _ = cycle_of()
    client = client_on(cycle)
    cycle.add(b"a" * 70_000)

    with pytest.raises(ClientGone), client:
        await asyncio.sleep(0.01)
        assert transport.reading
        cycle.lose()
        await asyncio.Event().wait()


async def test_a_cancellation_from_outside_is_not_swallowed(served: Served) -> None:
    """A server that shuts down cancels the task: that is no client leaving."""
    client = served.client
    task = asyncio.create_task(serve_for_ever(client))
    await asyncio.sleep(0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert not client.gone


async def test_a_cancellation_from_outside_wins_over_a_client_that_leaves(served: Served) -> None:
    """Both at once: the task must still end as cancelled."""
    client = served.client
    task = asyncio.create_task(serve_for_ever(client))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    served.leave()
    for _ in range(served.turns):
        await asyncio.sleep(0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


async def test_an_error_in_the_block_is_raised_as_it_is(served: Served) -> None:
    """Also when the client leaves just then."""
    client = served.client

    with pytest.raises(ZeroDivisionError), client:
        served.leave()
        try:
            await asyncio.Event().wait()
        finally:
            raise ZeroDivisionError


async def test_a_block_can_be_entered_again(served: Served) -> None:
    """One for the upstream's header, one for its body: the client may leave in either."""
    client = served.client
    with client:
        await asyncio.sleep(0)

    with pytest.raises(ClientGone), client:
        served.leave()
        await asyncio.Event().wait()


def current() -> "asyncio.Task[None]":
    task = asyncio.current_task()
    assert task is not None
    return task
