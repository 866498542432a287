"""The way out over HTTP: one pooled client per upstream, the only door to aiohttp.

Sends a request as it was given, hands back the answer as it comes, and turns every way of failing into one sentence. It follows no
redirect, keeps no cookie, adds no header of its own, and reads nothing from the environment. What may be in a header is `headers`'
business.
"""

import asyncio
import io
import math
import os
import re
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextvars import ContextVar
from functools import lru_cache, partial
from typing import Any, NamedTuple

import aiohttp
from aiohttp import hdrs
from yarl import URL

from proxy.codings import CODINGS, CodingError, Decoder
from proxy.errors import BadRequest, ConfigError, UpstreamCut, UpstreamFailed
from proxy.upstream import Target, base_url_of, proxy_of, unquoted
from proxy.upstream.arrived import Whole
from proxy.upstream.headers import RawHeaders, declared_length, to_client, to_upstream, written
from proxy.upstream.whole import FAILURES, Answer, Place, Pool, Way, check, is_stale
from proxy.waits import Limit, Waits

Body = bytes | AsyncIterator[bytes] | None

# Idle connections are kept a little shorter than common servers and balancers keep theirs (60 s and more). Those that hang up
# sooner (5 s is usual for Python and Node servers) are mostly noticed when they do; `is_stale` is for the rest.
_KEEP_ALIVE = 55.0
# Seconds in which a lossy network may still catch up with what was sent.
_LEAST_UNACKNOWLEDGED = 10.0
# Seconds between looks at a connection that a reader waits for.
_LOOK_EVERY = 1.0
# What one header line, or the status line, may measure in bytes.
_HEADER_LIMIT = 64 * 1024
# aiohttp wants bodies above this as a file, to write them piece by piece.
_WHOLE_BODY = 1024 * 1024
# What of one answer is followed, decoded bytes: a whole one is in memory several times, of a stream only what it says. The largest
# outputs known come to 128k tokens, less than half a KiB of events each.
_MOST_WHOLE = 64 * 1024 * 1024
_MOST_STREAMED = 256 * 1024 * 1024
# Judged routes are few; others hold ids that hardly come twice.
_MOST_URLS = 64
_OWN_HEADERS = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
_TIMED_OUT = "lastcall_upstream_timeout"
_CLIMBING = re.compile(r"(?:^|[/\\])\.\.(?:[/\\;]|$)")
_NO_ISSUER = frozenset({2, 18, 19, 20, 21})  # X509_V_ERR_*: the certificate's issuer is unknown here or it is its own
_WRONG_HOST = frozenset({62, 64})  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH


class Response:
    """An answer whose header has come and whose body may still be coming.

    headers: what the client may see, names in lower case. Read it to the end or `close` it; both give the connection back.
    """

    __slots__ = (
        "_answer",
        "_coded",
        "_decoder",
        "_followed",
        "_looks",
        "_looks_left",
        "_upstream",
        "_whole",
        "headers",
        "reason",
        "status",
    )

    def __init__(
        self, answer: "aiohttp.ClientResponse | Answer | Whole", upstream: "Upstream", looks: "Waits[Response]", *, plain: bool
    ) -> None:
        self._upstream = upstream
        self._followed = plain
        self.status = answer.status
        self.reason = answer.reason or ""
        if isinstance(answer, Whole):
            self._whole: Whole | None = answer
            self.headers = answer.to_client(plain=plain)
            return
        self._whole = None
        self._answer = answer
        self._looks = looks
        self._looks_left = 0
        coding = answer.headers.get(hdrs.CONTENT_ENCODING, "").lower() if plain else ""
        self._decoder = Decoder(coding) if coding and coding in CODINGS else None
        self._coded: Iterator[bytes] = iter(())
        self.headers = to_client(answer.raw_headers, plain=plain, bodiless=answer.status in (204, 304))

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body in the pieces it arrives in. Raises `UpstreamCut` when it breaks off or falls silent for too long.

        Also when it is one that is followed (`plain`) and goes on for more than 256 MiB.
        """
        if self._whole is not None:
            if self._whole.body:
                yield self._whole.body
            return
        size, coming = 0, self._arrivals()
        try:
            while piece := await coming():
                size += len(piece)
                if self._followed and size > _MOST_STREAMED:
                    raise self._too_long(_MOST_STREAMED)
                yield piece
        finally:
            self.close()

    async def read(self, limit: int | None = None) -> bytes:
        """The whole body. Raises `UpstreamCut`, also when it exceeds `limit` bytes (64 MiB for one that is followed)."""
        limit = _MOST_WHOLE if limit is None and self._followed else limit
        if self._whole is not None:
            if limit is not None and len(self._whole.body) > limit:
                raise self._too_long(limit)
            return self._whole.body
        if self._decoder is None and (content := self._answer.content).is_eof():  # all of it came with the header
            whole = content.read_nowait()
            if limit is not None and len(whole) > limit:
                raise self._too_long(limit)
            return whole
        pieces: list[bytes] = []
        size, coming = 0, self._arrivals()
        try:
            while piece := await coming():
                size += len(piece)
                if limit is not None and size > limit:
                    raise self._too_long(limit)
                pieces.append(piece)
        finally:
            self.close()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _too_long(self, limit: int) -> UpstreamCut:
        return UpstreamCut(f"{self._upstream} answered with more than the {limit} bytes that Lastcall reads of one answer.")

    def _arrivals(self) -> Callable[[], Awaitable[bytes]]:
        """What tells the next piece, b"" at the end."""
        return self._arrived if self._decoder is None else partial(self._decoded, self._decoder)

    async def _decoded(self, decoder: Decoder) -> bytes:
        try:
            while not (piece := next(self._coded, b"")):
                arrived = await self._arrived()
                if not arrived:
                    decoder.end()
                    break
                self._coded = decoder.feed(arrived)
        except CodingError as error:
            raise UpstreamCut(f"{self._upstream} answered with what is {error}.") from None
        return piece

    async def _arrived(self) -> bytes:
        content = self._answer.content
        self._looks_left = self._upstream.most_looks
        if not content.is_eof():
            self._looks.begin(self)
        try:
            return await content.readany()
        except (*FAILURES, RuntimeError) as error:  # RuntimeError: the connection was gone before this read
            raise self._upstream.cut(error if self._looks_left else aiohttp.SocketTimeoutError()) from None
        finally:
            self._looks.end(self)

    def look_after(self) -> None:
        """Ends a wait that is long enough, and one on a connection that is gone.

        aiohttp does not notice the latter after a chunk that is none, nor when the pool is closed.
        """
        connection = self._answer.connection
        if connection is None:
            return
        self._looks_left -= 1
        if not self._looks_left or connection.transport is None or connection.transport.is_closing():
            self.close()
        else:
            self._looks.begin(self)

    def close(self) -> None:
        """Ends the exchange at once: an answer read to its end has given its connection back, any other's is closed."""
        if self._whole is None and not self._answer.closed:
            self._answer.close()


class _Connection:
    """What a request was given: a connection opened for it, or one that had served before.

    Told by way of a context variable, which every callback of a new connection keeps for its life: hence no more than this in it.
    """

    __slots__ = ("new",)

    def __init__(self) -> None:
        self.new = False


_CONNECTION: ContextVar[_Connection] = ContextVar("upstream_connection")


class _Request:
    """One request and what becomes of it: which connection it got, what broke its body off. limit: until the answer's header is there."""

    __slots__ = ("body", "broken", "connection", "limit", "started")

    def __init__(self, body: Body) -> None:
        self.body = body
        self.started = _now()
        self.connection = _Connection()
        self.broken: Exception | None = None
        self.limit: Limit | None = None

    def is_stale(self, error: Exception) -> bool:
        """Whether it can be repeated: its body is still held, and the connection had served before (`whole.is_stale`)."""
        return not self.connection.new and isinstance(self.body, bytes | None) and is_stale(error, self.started)


class _Place(NamedTuple):
    """Where a request goes. opening: of one that is posted, up to the header fields that are its own. bearer: whether a key is one."""

    url: URL
    opening: bytes
    bearer: bool

    @classmethod
    def at(cls, url: URL, *, bearer: bool) -> "_Place":
        return cls(url, f"POST {url.raw_path_qs} HTTP/1.1\r\nHost: {url.host_port_subcomponent}".encode(), bearer)


class Upstream:
    """One upstream and its connections. Make it inside the running event loop, `close` it there."""

    def __init__(self, target: Target) -> None:
        """Raises `ConfigError` for an unusable base_url, api_key, ca_file or proxy."""
        url = base_url_of(target)
        self._target = target
        self._base = str(url).rstrip("/")
        self._place = lru_cache(maxsize=_MOST_URLS)(self._checked_place)
        self._address = (url.raw_host, url.port)
        self._described = f"Upstream {target.name!r} at {url.scheme}://{url.host_subcomponent}:{url.port}"
        # Until the header: one silence for the request to leave, one for the answer. aiohttp itself watches neither a body that the
        # other side does not take nor a header that drips.
        patience = target.connect_timeout + 2 * target.read_timeout
        self._unanswered: Waits[Limit] = Waits(patience, lambda limit, _: limit.end())
        # aiohttp would set a timer for each chunk of an answer: its silences are found by the looks that are taken anyway.
        self.most_looks = math.ceil(target.read_timeout / _LOOK_EVERY)
        self._looks: Waits[Response] = Waits(target.read_timeout / self.most_looks, lambda response, _: response.look_after())
        self._timeout = aiohttp.ClientTimeout(connect=target.connect_timeout, sock_read=target.read_timeout)
        self._pool = Pool(_KEEP_ALIVE, tls_of(target), _Sockets(target.read_timeout), target.read_timeout, _HEADER_LIMIT)
        self._session = aiohttp.ClientSession(
            connector=self._pool,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=_OWN_HEADERS,
            timeout=self._timeout,
            proxy=proxy_of(target),
            max_line_size=_HEADER_LIMIT,
            max_field_size=_HEADER_LIMIT,
        )
        # A forward proxy wants every request, or its connection, made otherwise.
        self._way = None if target.proxy else Way(self._pool, self._timeout, Place("POST", url), patience)

    @property
    def target(self) -> Target:
        """What it leads to. Equal targets, equal upstreams."""
        return self._target

    def __str__(self) -> str:
        """`Upstream 'name' at scheme://host:port`, safe to show to anybody."""
        return self._described

    async def send(
        self,
        method: str,
        path: str,
        query: bytes,
        headers: RawHeaders,
        body: Body,
        *,
        plain: bool,
        within: float | None = None,
    ) -> Response:
        """Sends one request and returns when the header of its answer is there.

        path: what follows the base URL, percent-encoded as the client sent it. plain: see `headers`; a compressed answer is then
        decoded. within: seconds for the whole exchange, body included. Raises `BadRequest` for a path or query that cannot be sent,
        `UpstreamFailed` when no answer came, and whatever a streamed body raises.
        """
        place = self._place(path, query)
        api_key, bearer = self._target.api_key, place.bearer
        answer: Whole | Answer | aiohttp.ClientResponse
        if isinstance(body, bytes) and len(body) <= _WHOLE_BODY and method == "POST" and within is None and self._way is not None:
            fields = written(headers, api_key=api_key, plain=plain, bearer=bearer)
            try:
                answer = await self._way.send(b"%b%b\r\nContent-Length: %d\r\n\r\n%b" % (place.opening, fields, len(body), body))
            except FAILURES as error:
                raise self.failed(error) from None
        else:
            outgoing = to_upstream(headers, api_key=api_key, plain=plain, bearer=bearer)
            if not isinstance(body, bytes | None) and (length := declared_length(headers)) is not None:
                outgoing.append(("Content-Length", length))
            request = _Request(body)
            attempt = partial(self._in_session, request, method, place.url, outgoing, within)
            try:
                try:
                    answer = await attempt()
                except FAILURES as error:
                    if not request.is_stale(error):
                        raise
                    self._pool.drop()
                    answer = await attempt()
            except FAILURES as error:
                raise (request.broken or self.failed(error)) from None
        return Response(answer, self, self._looks, plain=plain)

    def _is_bearer(self, path: str) -> bool:
        """Whether the key is a bearer token: everywhere but on the routes of the messages API, which want it in a header of its own."""
        header = self._target.key_header
        return not path.startswith("/messages") if header is None else header == "authorization"

    async def close(self) -> None:
        """Closes every connection. Answers still being read break off."""
        await self._session.close()

    async def _in_session(
        self, request: _Request, method: str, url: URL, headers: list[tuple[str, str]], within: float | None
    ) -> aiohttp.ClientResponse:
        timeout = self._timeout if within is None else _within(self._timeout, within)
        with Limit() as limit:
            request.limit = limit
            self._unanswered.begin(limit)
            outer = _CONNECTION.set(request.connection)
            try:
                answer = await self._session.request(
                    method, url, headers=headers, data=self._payload(request), allow_redirects=False, auto_decompress=False, timeout=timeout
                )
            finally:
                _CONNECTION.reset(outer)
                self._unanswered.end(limit)
                request.limit = None
        if answer.connection is not None and answer.connection.protocol is not None:
            answer.connection.protocol.read_timeout = None
        check(answer)
        return answer

    def _payload(self, request: _Request) -> bytes | io.BytesIO | AsyncIterator[bytes] | None:
        match request.body:
            case None:
                return None
            case bytes() as whole:
                return whole if len(whole) <= _WHOLE_BODY else io.BytesIO(whole)
            case pieces:
                return self._uploaded(pieces, request)

    async def _uploaded(self, body: AsyncIterator[bytes], request: _Request) -> AsyncIterator[bytes]:
        """A streamed body on its way out. The client may take its time; a failure of the body's own is kept."""
        try:
            self._allow(request, waits=False)
            async for piece in body:
                self._allow(request, waits=True)
                yield piece
                self._allow(request, waits=False)
            self._allow(request, waits=True)
        except Exception as error:
            request.broken = error
            raise

    def _allow(self, request: _Request, *, waits: bool) -> None:
        """Lets the time for a request begin anew, or stand."""
        if request.limit is None:
            return
        if waits:
            self._unanswered.begin(request.limit)
        else:
            self._unanswered.end(request.limit)

    def _checked_place(self, path: str, query: bytes) -> "_Place":
        """Where a request goes, byte for byte. Nothing a client sends can change the host or leave the base URL's path."""
        if (path and not path.startswith("/")) or not _is_sendable(path) or "?" in path or _CLIMBING.search(unquoted(path)):
            raise BadRequest(f"The path {path[:200]!r} cannot be forwarded: it must begin with '/', be percent-encoded and hold no '..'.")
        if not query:
            return _Place.at(URL(self._base + path, encoded=True), bearer=self._is_bearer(path))
        text = query.decode("latin-1")
        if not _is_sendable(text):
            raise BadRequest("The query string cannot be forwarded: it must be percent-encoded.")
        return _Place.at(URL(f"{self._base}{path}?{text}", encoded=True), bearer=self._is_bearer(path))

    def failed(self, error: Exception) -> UpstreamFailed:
        """What to tell a client for whom there is no answer at all."""
        match error:
            case aiohttp.ConnectionTimeoutError():
                return self._timed_out(f"accepted no connection within {self._target.connect_timeout:g} s (connect_timeout)")
            case aiohttp.SocketTimeoutError():
                return self._timed_out(f"sent nothing for {self._target.read_timeout:g} s (read_timeout)")
            case TimeoutError():
                return self._timed_out("gave no answer in the time allowed for it")
            case aiohttp.ClientHttpProxyError():
                why = f"cannot be reached: its forward proxy refused the tunnel with status {error.status}"
            case aiohttp.ClientConnectorCertificateError():
                why = _why_untrusted(error.certificate_error)
            case aiohttp.ClientSSLError():
                why = f"failed the TLS handshake ({_ssl_word(error.os_error)}): does it speak https on that port?"
            case aiohttp.ClientConnectorError():
                why = self._why_unconnected(error)
            case aiohttp.ClientResponseError() | aiohttp.ClientPayloadError():
                why = "answered with something that is not valid HTTP"
            case _:
                why = "closed the connection before it answered"
        return UpstreamFailed(f"{self} {why}.")

    def cut(self, error: Exception) -> UpstreamCut:
        """What to tell a client whose answer broke off."""
        if isinstance(error, aiohttp.SocketTimeoutError):
            why = f"sent nothing for {self._target.read_timeout:g} s (read_timeout) in the middle of its answer"
            return UpstreamCut(f"{self} {why}.", status=504, code=_TIMED_OUT)
        if isinstance(error, TimeoutError):
            return UpstreamCut(f"{self} did not finish its answer in the time allowed for it.", status=504, code=_TIMED_OUT)
        return UpstreamCut(f"{self} broke off in the middle of its answer.")

    def _timed_out(self, why: str) -> UpstreamFailed:
        return UpstreamFailed(f"{self} {why}.", status=504, code=_TIMED_OUT)

    def _why_unconnected(self, error: aiohttp.ClientConnectorError) -> str:
        way = "" if (error.host, error.port) == self._address else f" by way of the forward proxy {error.host}:{error.port}"
        if isinstance(error, aiohttp.ClientConnectorDNSError):
            return f"cannot be reached{way}: the host name does not resolve ({error.strerror})"
        number = error.os_error.errno
        return f"cannot be reached{way}: {os.strerror(number).lower() if number else 'the connection was closed at once'}"


class _Sockets:
    """Makes sockets, and tells the request at hand that it did: aiohttp says nowhere else whether a connection is a new one.

    They notice a peer gone for good: probes when idle, an end to sending that nobody acknowledges. Without the second a body stuck
    half-way would hold its socket long after the exchange was given up. Linux only; elsewhere the system's own limits hold.
    """

    def __init__(self, patience: float) -> None:
        self._milliseconds = int(max(patience, _LEAST_UNACKNOWLEDGED) * 1000)

    def __call__(self, address: Any) -> socket.socket:
        if (connection := _CONNECTION.get(None)) is not None:
            connection.new = True
        family, kind, protocol, _, _ = address
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, self._milliseconds)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 30)
        return made


def _now() -> float:
    return asyncio.get_running_loop().time()


def _within(timeout: aiohttp.ClientTimeout, total: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=total, connect=timeout.connect, sock_read=timeout.sock_read)


def _is_sendable(text: str) -> bool:
    """Whether a request target may hold this text: visible ASCII, and no `#`, which would end it."""
    return text.isascii() and text.isprintable() and " " not in text and "#" not in text


def tls_of(target: Target) -> ssl.SSLContext:
    """How a certificate of the target is checked. Raises `ConfigError` when its `ca_file` cannot be used."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(("http/1.1",))
    if target.ca_file is not None:
        try:
            context.load_verify_locations(cafile=target.ca_file)
        except OSError as error:  # unreadable, or (SSLError) not certificates
            raise ConfigError(f"upstreams.{target.name}.ca_file: no PEM certificates in {target.ca_file!r} ({error}).") from None
    if not target.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _why_untrusted(error: Exception) -> str:
    code = getattr(error, "verify_code", None)
    why = getattr(error, "verify_message", None) or str(error)
    if code in _NO_ISSUER:
        fix = "; if a private authority signed it, name that authority's PEM file in `ca_file`"
    elif code in _WRONG_HOST:
        fix = "; name the host in `base_url` as the certificate does"
    else:
        fix = ""
    return f"shows a certificate that is not trusted ({why.rstrip('.')}){fix}"


def _ssl_word(error: BaseException) -> str:
    return getattr(error, "reason", None) or type(error).__name__
