"""What an upstream is, and which forward proxy leads to it."""

import pytest

from proxy.upstream import Target, proxy_from

OUT = "http://out:3128"


def test_a_target_shows_no_secret() -> None:
    """Neither its key nor its proxy's password stands in its representation."""
    shown = repr(Target("default", "https://api.openai.com/v1", api_key="sk-secret", proxy="http://user:hidden@out:3128"))

    assert "default" in shown
    assert "sk-secret" not in shown
    assert "hidden" not in shown


@pytest.mark.parametrize(
    ("environ", "base_url", "proxy"),
    [
        ({}, "https://api.openai.com/v1", None),
        ({"HTTPS_PROXY": OUT}, "https://api.openai.com/v1", OUT),
        ({"HTTPS_PROXY": OUT}, "http://model/v1", None),
        ({"HTTP_PROXY": OUT}, "http://model/v1", OUT),
        ({"http_proxy": OUT, "HTTP_PROXY": "http://other"}, "http://model/v1", OUT),
        ({"ALL_PROXY": OUT}, "https://api.openai.com/v1", OUT),
        ({"https_proxy": "out:3128"}, "https://api.openai.com/v1", OUT),
        ({"HTTPS_PROXY": " "}, "https://api.openai.com/v1", None),
        ({"HTTP_PROXY": OUT}, "http://localhost:11434/v1", None),
        ({"HTTP_PROXY": OUT}, "http://127.0.0.1:8000/v1", None),
        ({"HTTP_PROXY": OUT}, "http://[::1]:8000/v1", None),
    ],
)
def test_the_environment_names_a_proxy(environ: dict[str, str], base_url: str, proxy: str | None) -> None:
    """By scheme, small letters first, never for this machine itself."""
    assert proxy_from(environ, base_url) == proxy


@pytest.mark.parametrize(
    ("rules", "base_url", "direct"),
    [
        ("*", "http://model/v1", True),
        ("model", "http://model:8000/v1", True),
        ("Model.Example.COM", "http://model.example.com/v1", True),
        ("other, model", "http://model/v1", True),
        (".example.com", "http://model.example.com/v1", True),
        ("*.example.com", "http://model.example.com/v1", True),
        ("example.com", "http://model.example.com/v1", True),
        (".svc,.cluster.local", "http://vllm.ml.svc.cluster.local:8000/v1", True),
        ("model:8000", "http://model:8000/v1", True),
        ("model:80", "http://model/v1", True),
        ("model:9000", "http://model:8000/v1", False),
        ("example.com:8000", "http://model.example.com:8000/v1", True),
        ("10.0.0.0/8", "http://10.1.2.3:8000/v1", True),
        ("10.0.0.0/8", "http://11.1.2.3:8000/v1", False),
        ("10.1.2.3", "http://10.1.2.3:8000/v1", True),
        ("fd00::/8", "http://[fd00::1]:8000/v1", True),
        ("ample.com", "http://example.com/v1", False),
        ("", "http://model/v1", False),
        (",,", "http://model/v1", False),
    ],
)
def test_the_environment_excepts_hosts(rules: str, base_url: str, direct: bool) -> None:
    """Names with subdomains, ports, addresses and networks."""
    assert proxy_from({"http_proxy": OUT, "NO_PROXY": rules}, base_url) == (None if direct else OUT)
