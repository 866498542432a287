"""The ways to an upstream: TLS with whose certificates, and forward proxies."""

import asyncio
import base64
import shutil
import ssl
import subprocess
from asyncio import StreamReader as Reader
from asyncio import StreamWriter as Writer
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from proxy.errors import UpstreamFailed
from proxy.upstream import Target
from proxy.upstream.http import Upstream
from tests.scripted import OK, Seen, post, script, serving, upstream_at
from tests.servers import missing

NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")


@dataclass(frozen=True)
class Authority:
    """A certificate authority that nobody trusts yet. file: its own certificate."""

    file: Path

    def serve(self, name: str) -> ssl.SSLContext:
        """What a server needs to show a certificate for `name` (as in a subjectAltName)."""
        folder = self.file.parent
        signing = ("-CA", str(self.file), "-CAkey", str(folder / "ca.key"), "-addext", "basicConstraints=critical,CA:FALSE")
        certify(folder, "server", *signing, "-subj", "/CN=server", "-addext", f"subjectAltName={name}")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "server.pem", folder / "server.key")
        return context


def certify(folder: Path, name: str, *options: str) -> None:
    keys = ("-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.pem"))
    subprocess.run(["openssl", "req", "-x509", *NEW_KEY, *keys, *options], check=True, capture_output=True, timeout=30)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    if shutil.which("openssl") is None:
        missing("openssl on the PATH")
    certify(tmp_path, "ca", "-subj", "/CN=Test Authority")
    return Authority(tmp_path / "ca.pem")


async def failure(upstream: Upstream) -> str:
    with pytest.raises(UpstreamFailed) as failed:
        await post(upstream)
    assert failed.value.status == 502
    return failed.value.message


@pytest.mark.parametrize(
    "trusting",
    [lambda ca: Target("main", "", ca_file=str(ca)), lambda ca: Target("main", "", verify=False)],
    ids=["ca_file", "verify false"],
)
async def test_a_private_authority_can_be_trusted(authority: Authority, trusting: Callable[[Path], Target]) -> None:
    """By naming its file, or by trusting everybody."""
    tls = authority.serve("IP:127.0.0.1")
    async with serving(script(Seen(), OK), tls) as port, upstream_at(port, trusting(authority.file), "https") as upstream:
        assert await (await post(upstream)).read() == b"ok"


async def test_an_unknown_authority_is_named_as_the_fault(authority: Authority) -> None:
    """Nothing is sent, and the message says how to trust it."""
    seen = Seen()
    async with serving(script(seen, OK), authority.serve("IP:127.0.0.1")) as port, upstream_at(port, scheme="https") as upstream:
        message = await failure(upstream)

    assert f"https://127.0.0.1:{port} shows a certificate that is not trusted" in message
    assert "`ca_file`" in message
    assert seen.heads == []


async def test_a_certificate_for_another_host_is_refused(authority: Authority) -> None:
    """Whoever signed it; and a file of authorities is no cure."""
    target = Target("main", "", ca_file=str(authority.file))
    async with (
        serving(script(Seen(), OK), authority.serve("DNS:elsewhere.example")) as port,
        upstream_at(port, target, "https") as upstream,
    ):
        message = await failure(upstream)

    assert "not trusted" in message
    assert "`base_url`" in message
    assert "ca_file" not in message


async def test_an_upstream_without_tls_is_reported() -> None:
    """Https to a port that speaks http."""

    async def speak_http(reader: Reader, writer: Writer) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        await reader.read()

    async with serving(speak_http) as port, upstream_at(port, scheme="https") as upstream:
        assert "does it speak https on that port?" in await failure(upstream)


@dataclass
class ForwardProxy:
    """A forward proxy: tunnels after CONNECT, answers anything else itself with `OK`. heads: what it was asked."""

    answer: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n"
    heads: list[list[str]] = field(default_factory=list)

    async def __call__(self, reader: Reader, writer: Writer) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().rstrip("\r\n").split("\r\n")
        self.heads.append(head)
        verb, where, _ = head[0].split()
        if verb != "CONNECT":
            writer.write(OK)
            await reader.read()
            return
        writer.write(self.answer)
        if b" 200 " in self.answer:
            far_reader, far_writer = await asyncio.open_connection(*where.split(":"))
            try:
                await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))
            finally:
                far_writer.transport.abort()


async def pump(source: Reader, sink: Writer) -> None:
    while data := await source.read(65536):
        sink.write(data)
    sink.close()


def by_way_of(port: int, ca_file: Path | None = None) -> Target:
    return Target("main", "", ca_file=str(ca_file) if ca_file else None, proxy=f"http://user:hidden@127.0.0.1:{port}")


async def test_https_goes_through_a_tunnel(authority: Authority) -> None:
    """The forward proxy learns the host and port, not the request; the connection is kept like any other."""
    seen, forward = Seen(), ForwardProxy()
    tls = authority.serve("IP:127.0.0.1")
    async with (
        serving(script(seen, OK, OK), tls) as port,
        serving(forward) as way,
        upstream_at(port, by_way_of(way, authority.file), "https") as upstream,
    ):
        for _ in range(2):
            answer = await post(upstream, headers=[(b"authorization", b"Bearer client")])
            assert await answer.read() == b"ok"

    assert [head[0] for head in forward.heads] == [f"CONNECT 127.0.0.1:{port} HTTP/1.1"]
    credentials = base64.b64encode(b"user:hidden").decode()
    assert f"Proxy-Authorization: Basic {credentials}" in forward.heads[0]
    assert "client" not in str(forward.heads)
    assert "Proxy-Authorization" not in str(seen.heads)


async def test_http_is_forwarded_in_absolute_form() -> None:
    """Without TLS the forward proxy gets the request itself."""
    forward = ForwardProxy()
    async with serving(forward) as way, upstream_at(1, by_way_of(way)) as upstream:
        assert await (await post(upstream)).read() == b"ok"

    assert forward.heads[0][0] == "POST http://127.0.0.1:1/v1/chat/completions HTTP/1.1"


async def test_a_forward_proxy_that_refuses_is_named_as_the_fault() -> None:
    """With its status, without its credentials."""
    forward = ForwardProxy(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
    async with serving(forward) as way, upstream_at(1, by_way_of(way), "https") as upstream:
        message = await failure(upstream)

    assert "forward proxy refused the tunnel with status 407" in message
    assert "hidden" not in message


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_forward_proxy_that_is_away_is_named_as_the_fault(scheme: str) -> None:
    """Not the upstream, which nobody asked."""
    async with upstream_at(9, by_way_of(1), scheme) as upstream:
        message = await failure(upstream)

    assert "cannot be reached by way of the forward proxy 127.0.0.1:1: connection refused" in message
    assert "hidden" not in message
