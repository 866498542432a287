"""The client's connection: requests one after the other, no head of one that grows without end, and no client that is waited for so.

The parser is uvicorn's, and so is how a connection begins and a server ends. It keeps a request head, or the fields behind a chunked
body, however long they get; here there is an end to that, and those fields are not taken for headers. Nor is any other protocol
begun. What a request is made of otherwise comes at less cost here: what most requests of a connection share is kept, up to a whole head
that comes again (`proxy.heads`), and one timer serves all its times between two requests.

uvicorn also waits for ever: for the rest of a request, and for a client to take its answer. Here each connection is looked at now and
then, which costs a request nothing, and ended when its client has let it wait for longer than `client_timeout`. Whoever moves
`_LEAST_RATE` is not slow, whatever the size.
"""

import asyncio
import re
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from operator import methodcaller
from typing import Any
from urllib.parse import unquote

import httptools
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from proxy.asgi import EXTENSION, Cycle, GatheringTransport, Scope
from proxy.heads import Head, Heads, learnt

_HEAD_BYTES = 65_536
_MOST_QUEUED = 16  # requests sent before the answer to an earlier one; hardly any client sends even one
_MOST_FIELDS = 1000  # of a head
_LEAST_RATE = 500  # bytes a second
_LOOKS = 4  # within one time-out
_MOST_LEARNT = 8  # heads of a connection, while none is like those before it
_WISH = b"upgrade:"
_UPGRADE = re.compile(rb"\r\nupgrade:[^\r\n]*(?=\r\n|\Z)", re.IGNORECASE)
_TOO_LONG = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: 57\r\nconnection: close\r\n\r\nThe request head is larger than 64 KiB: send less in it.\n"
)


_SLOW = (
    b'{"error":{"message":"The rest of the request did not come within server.client_timeout: send it sooner, or raise the limit.",'
    b'"type":"invalid_request_error","code":"lastcall_request_timeout","param":null}}'
)
_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b" % (
    len(_SLOW),
    _SLOW,
)

_text = methodcaller("decode", "latin-1")
_parsed = HttpToolsProtocol.data_received


class _Names:
    """The names of a request's fields as they came, in lower case, and as text from the last to the first."""

    __slots__ = ("came", "lower", "texts")

    def __init__(self, came: tuple[bytes, ...]) -> None:
        self.came = came
        self.lower = [name.lower() for name in came]
        self.texts = [name.decode("latin-1") for name in reversed(self.lower)]


class Protocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 protocol over a `GatheringTransport`.

    client_timeout: seconds that a client may let its connection wait; it is noticed within half as much again. heads: of all connections
    of a server.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        client_timeout: float,
        heads: Heads | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.cycle: Cycle = None  # type: ignore[assignment]
        self._answering: Cycle | None = None  # the last that has begun; `cycle` is the last that has come
        self._queue: deque[tuple[Cycle, Scope]] = deque()
        self._client_timeout = client_timeout
        self._in_head = True
        self._line = b""  # of a head that has not come whole: its last one, see `_unsettled`
        self._before = b""  # what the parser has of the line end ahead of that
        self._url: bytes | None = None
        self._scope: dict[str, Any] = {}  # of requests for that
        self._names = _Names(())  # of the last one's fields: most of a connection's have the same
        self._between = True  # the parser has all of a request and nothing of the next
        self._whole_head: bytes | None = None  # of the request that the parser is given, where it came at once
        self._heads = heads or Heads()
        self._known = self._heads.newest  # of the last usual one that the parser was given
        self._unlike = 0  # heads that were learnt since one was known
        self._owed = 0  # bytes of a body that the parser is not given
        self._idle_since: float | None = None  # in which no byte has come since an answer
        self._fruitless = 0  # bytes that neither ended a head nor added to a body
        self._brought = 0  # bytes of the request that is on its way
        self._waiting: tuple[float, int] | None = None  # since when, and where things stood then
        self._next_look: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._gathering = GatheringTransport(transport, self.loop)
        super().connection_made(self._gathering)  # type: ignore[arg-type]
        self._look_later()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._next_look, self.timeout_keep_alive_task):
            if timer is not None:
                timer.cancel()
        self.connections.discard(self)
        if self._answering is not None:
            self._answering.lose()
        self.flow.resume_writing()
        if exc is None:
            self.transport.close()
        self.parser = None  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._brought += len(data)
        self._idle_since = None
        if self._owed:
            data = self._go_on(data)
        elif self._between and self._known is not None and not (self._before or self._queue):
            data = self._begin_again(self._known, data)
        if data:
            self._parse(data)

    def _begin_again(self, known: Head, data: bytes) -> bytes:
        """Takes up a request with a head like the one that is known. What is left of the data: all of it, where that is another."""
        found = known.again(data)
        if found is None:
            return data
        scope, texts, self._owed, begins = found
        self._unlike = self._fruitless = 0
        self._in_head = self._between = False
        self._take_up(scope, texts, keep_alive=True)
        return self._go_on(data[begins:])

    def _go_on(self, data: bytes) -> bytes:
        """Adds to a body that the parser is not given. What is left of the data."""
        owed = self._owed
        piece, rest = (data, b"") if len(data) <= owed else (data[:owed], data[owed:])
        self._owed = owed - len(piece)
        if piece:
            self.on_body(piece)
        if not self._owed:
            self.on_message_complete()
        return rest

    def _parse(self, data: bytes) -> None:
        self._fruitless += len(data)
        if self._in_head:
            begins, self._whole_head = self._between and self._unlike < _MOST_LEARNT, None
            before = self._before
            if before:
                data, self._line, self._before = before + self._line + data, b"", b""
            end = data.find(b"\r\n\r\n")
            if end < 0:
                end = _unsettled(data)
                data, self._line = data[:end], data[end:]
                self._before = b"\r\n" if data.endswith(b"\r\n") else data[-1:] if data.endswith(b"\r") else b""
            elif begins:
                self._whole_head = data[: end + 4]
            if data.find(b"pgrade:", 0, end) >= 0:  # the parser would drop the body; a server may ignore it (RFC 9110 section 7.8)
                data = _UPGRADE.sub(b"", data[:end]) + data[end:]
            if before:
                data = data[len(before) :]
        _parsed(self, data)
        if self._line and not self._in_head and not self.transport.is_closing():  # the head has ended before it
            data, self._line = self._line, b""
            _parsed(self, data)
        if self._fruitless > _HEAD_BYTES and not self.transport.is_closing():
            if self.cycle is None or self.cycle.response_complete:  # else an answer is under way, or about to be
                self.transport.write(_TOO_LONG)
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """What follows cannot be read. Within an answer, or before those that are due, there is no place to say so."""
        if self._queue or (self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete):
            self.transport.close()
        else:
            super().send_400_response(msg)

    # ---- what the parser tells

    def on_message_begin(self) -> None:
        self._between = False
        self.url = b""
        self.headers = []
        self._idle_since = None

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        parser = self.parser
        headers, self.headers = self.headers, []  # what comes behind a chunked body is no part of the head (RFC 9110 section 6.5.1)
        # A request of 20 bytes is kept as a KiB, a field of four as some 200 bytes. A wish for another protocol is here if it stood behind
        # another request: its body would be taken for the next one.
        if parser.should_upgrade() or len(self._queue) >= _MOST_QUEUED or len(headers) > _MOST_FIELDS:
            raise OverflowError
        self._fruitless = 0
        self._in_head = False
        self._before = b""
        if self.url != self._url:
            self._aim(self.url)
        names, values = zip(*headers) if headers else ((), ())  # noqa: B905 - pairs, all of them; `strict` costs a third more
        if names != self._names.came:
            self._names = _Names(names)
        version = parser.get_http_version()
        scope = {
            **self._scope,
            "http_version": version,
            "method": parser.get_method().decode("ascii"),
            "headers": [*zip(self._names.lower, values)],  # noqa: B905 - as many by construction
        }
        texts = dict(zip(self._names.texts, map(_text, reversed(values))))  # noqa: B905 - so that the first of one name counts
        keep_alive = version != "1.0" and parser.should_keep_alive()
        head, self._whole_head = self._whole_head, None
        if head is not None and keep_alive:
            self._known = self._heads.newest = learnt(head, scope, texts, self._known) or self._known
            self._unlike += 1
        self._take_up(scope, texts, keep_alive=keep_alive)

    def _take_up(self, scope: Scope, texts: Mapping[str, str], *, keep_alive: bool) -> None:
        """Begins on a request of which the head has come, or has it wait for the answers before its own."""
        before = self.cycle
        self.cycle = cycle = Cycle(scope, self._gathering, self.flow, self.on_response_complete)
        cycle.keep_alive, cycle.headers = keep_alive, texts
        scope["scheme"], scope["client"], scope["server"], scope["state"] = self.scheme, self.client, self.server, self.app_state.copy()
        scope["extensions"] = {EXTENSION: cycle}
        if before is None or before.response_complete:
            self._begin(cycle, scope)
        else:
            self._queue.append((cycle, scope))
            if len(self._queue) >= _MOST_QUEUED // 2:  # before that reading goes on, or it would not be seen that the client leaves
                self.flow.pause_reading()

    def _aim(self, url: bytes) -> None:
        """Makes the scope of requests for this address: most of a connection's are for the same. Raises for what is no address."""
        parsed = httptools.parse_url(url)
        path = parsed.path.decode("ascii")
        self._scope = {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": "",
            "method": "",
            "path": unquote(path) if "%" in path else path,
            "raw_path": parsed.path,
            "query_string": parsed.query or b"",
            "root_path": "",
            "headers": [],
        }
        self._url = url

    def _begin(self, cycle: Cycle, scope: Scope) -> None:
        self._answering = cycle
        cycle.begin(self.app, scope, self.tasks, self.loop)

    def on_body(self, body: bytes) -> None:
        self._fruitless = 0
        self.cycle.add(body)

    def on_message_complete(self) -> None:
        self._in_head = self._between = True
        self._brought = 0
        self._waiting = None
        self.cycle.complete()
        if self.cycle.response_complete:  # before all of the request had come
            self._idle()

    # ---- between two requests

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self._queue:
            self._begin(*self._queue.popleft())
            return
        self._idle()

    def _idle(self) -> None:
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def _unset_keepalive_if_required(self) -> None:
        """uvicorn's name for what is due when bytes come: it is done by then, and a request may have ended since."""

    def timeout_keep_alive_handler(self) -> None:
        """Ends a connection that has been of no use for so long; what began meanwhile has put that off."""
        self.timeout_keep_alive_task = None
        if self._idle_since is None:
            return
        left = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self.timeout_keep_alive_task = self.loop.call_later(left, self.timeout_keep_alive_handler)
        else:
            super().timeout_keep_alive_handler()

    # ---- a client that lets its connection wait

    def resume_writing(self) -> None:
        self._waiting = None
        super().resume_writing()

    def _look_later(self) -> None:
        self._next_look = self.loop.call_later(self._client_timeout / _LOOKS, self._look)

    def _look(self) -> None:
        """Ends a connection that its client has let wait too long."""
        blocked = self.flow.write_paused or self.transport.is_closing()
        if not blocked and not self._owes_request():
            self._waiting = None
        else:
            now = self.loop.time()
            moved = -self.transport.get_write_buffer_size() if blocked else self._brought
            since, before = self._waiting = self._waiting or (now, moved)
            if now - since > self._client_timeout + max(moved - before, 0) / _LEAST_RATE:
                self._give_up(blocked)
                return
        self._look_later()

    def _owes_request(self) -> bool:
        """Whether there is more of a request to come. Between two of them that is `timeout_keep_alive`'s business."""
        if self.flow.read_paused or self._queue:  # it is the proxy that does not read on, or answers an earlier one
            return False
        if not self._in_head or self.cycle is None:
            return True
        return self._brought > 0 and bool(self.cycle.response_complete)  # before that, line ends behind a body are nothing

    def _give_up(self, blocked: bool) -> None:
        if not blocked and (self._in_head or not self.cycle.response_started):
            if self._brought:  # else it was opened in advance, and whoever uses it next would take this for an answer
                self.transport.write(_TOO_SLOW)
            self.transport.close()
            self._look_later()
        else:
            self.transport.abort()


def protocol(client_timeout: float) -> Callable[..., Protocol]:
    """What `uvicorn.Config(http=…)` takes for a server with that time-out, see `Protocol`."""
    return partial(Protocol, client_timeout=client_timeout, heads=Heads())


def _unsettled(data: bytes) -> int:
    """Where in a head that has not come whole its last line begins, if that may become a wish for another protocol."""
    begins = data.rfind(b"\r\n") + 2
    line = data[begins : begins + len(_WISH)].lower()
    return begins if begins >= 2 and line and line == _WISH[: len(line)] else len(data)
