"""How a request is received and its response leaves: in the bytes, and with the refusals, that uvicorn has for them."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from proxy.asgi import App, Cycle, Message, Receive, Scope, Send
from tests.cycles import Transport, cycle_of, gathering, uvicorns


async def outcome(cycle: Any, transport: Transport, messages: list[Message]) -> tuple[object, ...]:
    """What comes of sending these."""
    try:
        for message in messages:
            await cycle.send(dict(message))
        failed = False
    except (RuntimeError, ValueError):
        failed = True
    await asyncio.sleep(0)
    return failed, transport.data, cycle.response_started, cycle.response_complete, transport.closed, transport.responses


# ---- writes


async def test_what_is_written_in_one_turn_leaves_in_one() -> None:
    """In order, and not before the turn is over."""
    transport = Transport()
    gathered = gathering(transport)
    gathered.write(b"a")
    gathered.write(b"b")
    assert transport.written == []
    await asyncio.sleep(0)

    assert transport.written == [b"ab"]


async def test_much_is_not_held() -> None:
    """So that the transport can say when it is full."""
    transport = Transport()
    gathered = gathering(transport)
    gathered.write(b"a" * 70_000)

    assert transport.written == [b"a" * 70_000]


async def test_closing_takes_nothing_along() -> None:
    """What was written before leaves before."""
    transport = Transport()
    gathered = gathering(transport)
    gathered.write(b"a")
    gathered.close()

    assert (transport.written, transport.closed) == ([b"a"], True)


async def test_what_is_held_when_the_connection_is_lost_is_let_go() -> None:
    """Quietly: the peer has left, which is no fault of anybody's."""
    transport = Transport()
    gathered = gathering(transport)
    gathered.write(b"a")
    transport.closed = True
    gathered.flush()
    gathered.write(b"b" * 70_000)
    gathered.close()

    assert transport.written == []


async def test_the_last_is_not_held() -> None:
    """It goes out at once, and with it what was held; nothing does on a connection that is closed."""
    transport = Transport()
    gathered = gathering(transport)
    gathered.write(b"a")
    gathered.write_last(b"b")
    gathered.write_last(b"c")
    transport.closed = True
    gathered.write_last(b"d")

    assert transport.written == [b"ab", b"c"]
    await asyncio.sleep(0)
    assert transport.written == [b"ab", b"c"]


@pytest.mark.parametrize("others", [0, 1])
async def test_an_answer_waits_for_the_end_of_the_turn_where_others_are_under_way(others: int) -> None:
    """Alone it has nobody to leave together with."""
    cycle, transport, _ = cycle_of()
    seen: list[list[bytes]] = []

    async def answers(_: Scope, __: Receive, ___: Send) -> None:
        assert cycle.whole(200, WHOLE, b"four")
        seen.append([*transport.written])

    tasks = {asyncio.create_task(asyncio.sleep(0.01)) for _ in range(others)}
    cycle.begin(answers, {}, tasks, asyncio.get_running_loop())
    assert cycle.task is not None
    await cycle.task
    await asyncio.sleep(0)
    await asyncio.gather(*tasks)

    assert len(seen[0]) == 1 - others
    assert len(transport.written) == 1


async def test_what_several_connections_write_leaves_at_the_end_of_the_turn() -> None:
    """A connection that is closed before takes what it holds with it at once."""
    transports = [Transport() for _ in range(3)]
    one, other, closed = (gathering(transport) for transport in transports)
    for gathered in (one, other, closed):
        gathered.write(b"a")
    one.write(b"b")
    closed.close()

    assert [transport.written for transport in transports] == [[], [], [b"a"]]
    await asyncio.sleep(0)
    assert [transport.written for transport in transports] == [[b"ab"], [b"a"], [b"a"]]


# ---- the response

PLAIN = [(b"content-type", b"application/json"), (b"x-a", "\u00e9\t~".encode("latin-1"))]
WHOLE = [*PLAIN, (b"content-length", b"4")]


def start(status: int, fields: list[tuple[bytes, bytes]]) -> Message:
    return {"type": "http.response.start", "status": status, "headers": fields}


def body(data: bytes, *, more: bool = False) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}


@pytest.mark.parametrize("keep_alive", [True, False])
@pytest.mark.parametrize("method", ["POST", "HEAD"])
@pytest.mark.parametrize("status", [200, 204, 304, 599])
@pytest.mark.parametrize(
    "fields", [[], PLAIN, WHOLE, [*WHOLE, (b"content-length", b"5")], [*PLAIN, (b"content-length", b"0")], [*PLAIN, *PLAIN]]
)
@pytest.mark.parametrize("pieces", [[b"four"], [b""], [b"f", b"", b"our"], [b"four", b""], [b"fiver"], [b"for"]])
async def test_a_response_leaves_as_uvicorn_would_send_it(
    pieces: list[bytes], fields: list[tuple[bytes, bytes]], status: int, method: str, keep_alive: bool
) -> None:
    """Byte for byte; one that is not as long as it says is refused, and is no complete response."""
    messages = [start(status, fields), *[body(piece, more=True) for piece in pieces[:-1]], body(pieces[-1])]
    expected = await outcome(*uvicorns(method, keep_alive=keep_alive), messages)
    got = await outcome(*cycle_of(method, keep_alive=keep_alive)[:2], messages)
    if expected[0]:  # how much of it had left is no matter: the connection is closed next
        assert got[0]
        assert not got[3]
    else:
        assert got == expected


@pytest.mark.parametrize("value", [b"1\r\nset-cookie: b", b"1\n2", b"1\r2", b"1\r\n", b"\n"])
async def test_a_field_with_a_line_break_is_not_sent(value: bytes) -> None:
    """It would be two."""
    cycle, transport, _ = cycle_of()
    with pytest.raises(RuntimeError, match="line break"):
        await cycle.send(start(200, [*WHOLE, (b"x-a", value)]))
    await asyncio.sleep(0)

    assert transport.written == []


@pytest.mark.parametrize(
    "messages",
    [[body(b"")], [start(200, []), start(200, [])], [start(200, []), body(b""), body(b"")], [start(200, []), body(b""), start(200, [])]],
)
async def test_a_message_that_is_not_due_is_refused(messages: list[Message]) -> None:
    """As by uvicorn: it is the application's fault."""
    assert (await outcome(*uvicorns(), messages))[0]
    assert (await outcome(*cycle_of()[:2], messages))[0]


async def test_a_client_that_is_slow_holds_the_response_up() -> None:
    """So that an answer is not read faster than it is taken; one that has left holds nothing up."""
    cycle, transport, flow = cycle_of()
    flow.pause_writing()
    sending = asyncio.create_task(cycle.send(start(200, WHOLE)))
    await asyncio.sleep(0.01)
    assert not sending.done()
    flow.resume_writing()
    await sending
    flow.pause_writing()
    cycle.lose()
    await cycle.send(body(b"four"))

    assert transport.data.endswith(b"\r\n\r\n")
    assert not cycle.response_complete


@pytest.mark.parametrize("keep_alive", [True, False])
@pytest.mark.parametrize("method", ["POST", "HEAD"])
@pytest.mark.parametrize("status", [200, 204, 304, 599])
@pytest.mark.parametrize("data", [b"four", b""])
async def test_a_whole_response_is_the_same_at_once(data: bytes, status: int, method: str, keep_alive: bool) -> None:
    """As in two messages, and it leaves before the loop's turn is over."""
    fields = [*PLAIN, (b"content-length", b"%d" % len(data))]
    expected = await outcome(*uvicorns(method, keep_alive=keep_alive), [start(status, fields), body(data)])
    cycle, transport, _ = cycle_of(method, keep_alive=keep_alive)
    assert cycle.whole(status, fields, data)

    assert (transport.data, transport.closed) == (expected[1], expected[4])
    assert await outcome(cycle, transport, []) == expected


async def test_a_whole_response_that_cannot_leave_at_once_is_left_to_messages() -> None:
    """Where the client has not taken what was there before, or has left."""
    slow, transport, flow = cycle_of()
    flow.pause_writing()
    lost, other, _ = cycle_of()
    lost.lose()
    begun, _, _ = cycle_of()

    assert not slow.whole(200, WHOLE, b"four")
    assert not lost.whole(200, WHOLE, b"four")
    assert transport.written == other.written == []
    assert not slow.response_started
    await begun.send(start(200, []))
    assert not begun.whole(200, WHOLE, b"four")


# ---- the request


async def test_a_body_is_received_as_it_came() -> None:
    """What came since the last time, and whether there is more."""
    cycle, _, _ = cycle_of()
    cycle.add(piece := b"a" * 100)
    message = await cycle.receive()
    assert message == {"type": "http.request", "body": piece, "more_body": True}
    assert message["body"] is piece
    cycle.add(b"b")
    cycle.add(b"c")
    cycle.complete()
    assert await cycle.receive() == {"type": "http.request", "body": b"bc", "more_body": False}


async def test_a_body_that_is_here_is_had_at_once() -> None:
    """But for one that is not whole yet, of which something was received, or whose client has left: that has to be asked for."""
    whole, _, _ = cycle_of()
    whole.add(piece := b"a" * 100)
    assert whole.at_once() is None
    whole.complete()
    assert whole.at_once() is piece
    assert whole.at_once() is None
    begun, _, _ = cycle_of()
    begun.add(b"a")
    begun.add(b"b")
    begun.complete()
    assert begun.at_once() == b"ab"
    lost, _, _ = cycle_of()
    lost.add(b"a")
    lost.complete()
    lost.lose()
    assert lost.at_once() is None


async def test_after_a_body_had_at_once_there_is_only_the_end() -> None:
    """As after one that was received."""
    cycle, _, _ = cycle_of()
    cycle.add(b"a")
    cycle.complete()
    cycle.at_once()
    waiting = asyncio.create_task(cycle.receive())
    await asyncio.sleep(0.01)
    assert not waiting.done()
    cycle.lose()
    assert await waiting == {"type": "http.disconnect"}


async def test_who_wants_to_know_is_told_of_a_loss() -> None:
    """At once; one after the response is none."""
    told: list[bool] = []
    lost, answered = cycle_of()[0], cycle_of()[0]
    for cycle in (lost, answered):
        cycle.on_loss = lambda: told.append(True)
    assert answered.whole(200, WHOLE, b"four")
    answered.lose()
    assert told == []
    lost.lose()
    assert told == [True]


@pytest.mark.parametrize("waits", [True, False])
async def test_the_end_is_a_disconnect(waits: bool) -> None:
    """That of the connection, and that of the response; whoever waits for it is told, and who asks later as well."""
    for lost in (True, False):
        cycle, _, _ = cycle_of()
        cycle.complete()
        assert await cycle.receive() == {"type": "http.request", "body": b"", "more_body": False}
        waiting = [asyncio.create_task(cycle.receive()) for _ in range(2 * waits)]
        await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        if lost:
            cycle.lose()
        else:
            await cycle.send(start(200, WHOLE))
            await cycle.send(body(b"four"))
        async with asyncio.timeout(5):
            assert [await task for task in waiting] == [{"type": "http.disconnect"}] * len(waiting)
            assert await cycle.receive() == {"type": "http.disconnect"}


async def test_a_body_that_is_not_taken_is_not_read_on() -> None:
    """At most some 64 KiB of it wait; taking them lets the rest come."""
    cycle, transport, _ = cycle_of()
    cycle.add(b"a" * 60_000)
    assert transport.reading
    cycle.add(b"a" * 6_000)
    assert not transport.reading
    assert len((await cycle.receive())["body"]) == 66_000
    cycle.add(b"b")
    await cycle.receive()
    assert transport.reading
    at_once, transport, _ = cycle_of()
    at_once.add(b"a" * 66_000)
    at_once.complete()
    assert not transport.reading
    at_once.at_once()
    assert transport.reading


@pytest.mark.parametrize("value", [b"100-continue", b"100-Continue"])
async def test_who_waits_to_be_told_is_told_once_to_send_its_body(value: bytes) -> None:
    """As soon as somebody wants the body, and not in the middle of a response."""
    cycle, transport, _ = cycle_of(fields=[(b"expect", value)])
    receiving = asyncio.create_task(cycle.receive())
    await asyncio.sleep(0.01)
    assert transport.written == [b"HTTP/1.1 100 Continue\r\n\r\n"]
    cycle.add(b"a")
    await receiving
    receiving = asyncio.create_task(cycle.receive())
    await asyncio.sleep(0.01)
    cycle.complete()
    await receiving

    assert len(transport.written) == 1


@pytest.mark.parametrize("fields", [[], [(b"expect", b"x")], [(b"x-expect", b"100-continue")]])
async def test_others_are_told_nothing(fields: list[tuple[bytes, bytes]]) -> None:
    """Most clients send their bodies unbidden."""
    cycle, transport, _ = cycle_of(fields=fields)
    receiving = asyncio.create_task(cycle.receive())
    await asyncio.sleep(0.01)
    cycle.complete()
    await receiving

    assert transport.written == []


async def test_who_has_sent_its_body_is_not_told_to() -> None:
    """Nor is one who has had the beginning of a response."""
    expecting = [(b"expect", b"100-continue")]
    sent, transport, _ = cycle_of(fields=expecting)
    sent.complete()
    await sent.receive()
    watching = asyncio.create_task(sent.receive())
    answered, other, _ = cycle_of(fields=expecting)
    await answered.send(start(200, []))
    receiving = asyncio.create_task(answered.receive())
    await asyncio.sleep(0.01)
    for task in (watching, receiving):
        task.cancel()

    assert transport.written == []
    assert b"100 Continue" not in other.data


# ---- the application


async def ran(app: App, cycle: Cycle) -> None:
    tasks: set[asyncio.Task[None]] = set()
    cycle.begin(app, {}, tasks, asyncio.get_running_loop())
    assert tasks == {cycle.task}
    assert cycle.task is not None
    await cycle.task
    assert tasks == set()


async def raising(_: Scope, __: Receive, ___: Send) -> None:
    raise ZeroDivisionError


async def silent(_: Scope, __: Receive, ___: Send) -> None:
    return


def begun(then: Callable[[], None]) -> App:
    async def app(_: Scope, __: Receive, send: Send) -> None:
        await send(start(200, []))
        then()

    return app


@pytest.mark.parametrize(
    ("app", "said"), [(raising, "Exception in ASGI application"), (silent, "ASGI callable returned without starting response.")]
)
async def test_an_application_that_does_not_answer_has_failed(app: App, said: str, caplog: pytest.LogCaptureFixture) -> None:
    """The client is told with a status, and the log why."""
    cycle, transport, _ = cycle_of()
    await ran(app, cycle)

    assert transport.data.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
    assert b"connection: close" in transport.data
    assert transport.closed
    assert said in caplog.text


@pytest.mark.parametrize("then", [lambda: None, lambda: 1 / 0])
async def test_a_response_that_breaks_off_ends_the_connection(then: Callable[[], None]) -> None:
    """Nothing else tells the client that it is not whole."""
    cycle, transport, _ = cycle_of()
    await ran(begun(then), cycle)

    assert transport.closed
    assert not transport.data.endswith(b"0\r\n\r\n")


async def test_an_application_that_breaks_off_is_no_exception(caplog: pytest.LogCaptureFixture) -> None:
    """As a forwarded body does whose upstream broke off. The log says no more than that it did."""
    cycle, _, _ = cycle_of()
    await ran(begun(lambda: None), cycle)

    assert [(record.getMessage(), record.exc_info) for record in caplog.records] == [
        ("ASGI callable returned without completing response.", None)
    ]


async def test_nobody_is_answered_who_has_left(caplog: pytest.LogCaptureFixture) -> None:
    """Which is no fault of the application's."""
    cycle, transport, _ = cycle_of()
    cycle.lose()
    await ran(silent, cycle)

    assert transport.written == []
    assert caplog.text == ""
