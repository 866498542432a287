"""What an upstream refuses before a byte is sent; `tests/e2e/test_upstream_http.py` has the rest, over real connections."""

from pathlib import Path

import pytest

from proxy.errors import BadRequest, ConfigError
from proxy.upstream import Target
from proxy.upstream.http import Upstream


@pytest.mark.parametrize(
    ("target", "fault"),
    [
        (Target("main", ""), "upstreams.main.base_url"),
        (Target("main", "api.openai.com/v1"), "upstreams.main.base_url"),
        (Target("main", "ftp://api.openai.com/v1"), "upstreams.main.base_url"),
        (Target("main", "http://[::1/v1"), "upstreams.main.base_url"),
        (Target("main", "https://user:pass@host/v1"), "api_key"),
        (Target("main", "https://host/v1?key=secret"), "query"),
        (Target("main", "https://host/v1", api_key="sk-secret\n"), "line break"),
        (Target("main", "https://host/v1", api_key=""), "upstreams.main.api_key"),
        (Target("main", "https://host/v1", proxy="socks5://user:pass@out:1080"), "SOCKS"),
        (Target("main", "https://host/v1", proxy="http://[out"), "NO_PROXY"),
        (Target("main", "https://host/v1", ca_file="/nowhere/ca.pem"), "/nowhere/ca.pem"),
    ],
)
async def test_an_unusable_target_is_refused_at_start(target: Target, fault: str) -> None:
    """The message names the key and the fix, and no secret."""
    with pytest.raises(ConfigError, match=fault) as refused:
        Upstream(target)

    assert not [secret for secret in ("pass@", "sk-secret", "=secret") if secret in str(refused.value)]


async def test_a_ca_file_without_certificates_is_refused_at_start(tmp_path: Path) -> None:
    """A file that exists and holds something else."""
    (tmp_path / "ca.pem").write_text("no certificate")

    with pytest.raises(ConfigError, match="ca_file"):
        Upstream(Target("main", "https://host/v1", ca_file=str(tmp_path / "ca.pem")))


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("@evil.example/v1", b""),
        (".evil.example", b""),
        (":9/v1", b""),
        ("/../admin", b""),
        ("/chat/..", b""),
        ("/%2e%2E/admin", b""),
        ("/%252e%252E/admin", b""),
        ("/a%25252f.%25252e", b""),
        ("/..%2fadmin", b""),
        ("/..\\admin", b""),
        ("/..;/admin", b""),
        ("/chat#fragment", b""),
        ("/chat?key=1", b""),
        ("/chat completions", b""),
        ("/chat\r\nHost: evil", b""),
        ("/chät", b""),
        ("/chat", b"a=1 HTTP/1.1\r\nHost: evil\r\n\r\n"),
        ("/chat", b"a#b"),
        ("/chat", b"\xff"),
    ],
)
@pytest.mark.parametrize("base_url", ["http://127.0.0.1:9/v1", "http://127.0.0.1:9"])
async def test_a_target_outside_the_base_url_is_refused(base_url: str, path: str, query: bytes) -> None:
    """No path or query of a client's chooses a host, leaves the base URL's path or ends the request line."""
    upstream = Upstream(Target("main", base_url))
    try:
        with pytest.raises(BadRequest):
            await upstream.send("GET", path, query, [], None, plain=False)
    finally:
        await upstream.close()


async def test_an_upstream_names_itself_without_secrets() -> None:
    """Name, scheme, host and port; an IPv6 address in brackets."""
    upstream = Upstream(Target("local", "https://[::1]/v1", api_key="sk-secret"))

    assert str(upstream) == "Upstream 'local' at https://[::1]:443"
    await upstream.close()
