"""Web pages that call: which are served, by `Origin` and `Host`."""

import pytest

from proxy.config import load
from proxy.errors import BadRequest
from proxy.origins import Origins, origins_of

LOCAL = Origins(())
KEYS = {"KEY": "sha256:" + "0" * 64}


def is_served(origins: Origins, host: str | None, origin: str | None = None) -> bool:
    headers = {name: value for name, value in (("host", host), ("origin", origin)) if value is not None}
    try:
        origins.check(headers)
    except BadRequest as refusal:
        assert (refusal.status, refusal.code) == (403, "lastcall_foreign_page")
        return False
    return True


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1:4000", "127.0.0.1", "localhost:4000", "LOCALHOST", "[::1]:4000", "api.localhost", "localhost."),
        *("10.0.0.7:4000", "203.0.113.5", "[2001:db8::1]:80", "lastcall", "host.docker.internal:4000", "laptop.local", "", None),
    ],
)
def test_addresses_and_local_names_are_served(host: str | None) -> None:
    """No page can be of a host called so and be anybody's."""
    assert is_served(LOCAL, host)


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:4000", "localhost.evil.example", "127.0.0.1.nip.io", "x.internal.evil", "a.b."]
)
def test_a_name_that_somebody_can_own_is_refused(host: str) -> None:
    """However it was made to lead here."""
    assert not is_served(LOCAL, host)
    assert not is_served(LOCAL, host, f"http://{host}")


@pytest.mark.parametrize(
    "origin",
    ["http://localhost:3000", "http://127.0.0.1:8080", "https://[::1]", "HTTP://app.localhost", "http://webui:8080", "app://obsidian.md"],
)
def test_pages_of_this_machine_and_installed_programs_are_served(origin: str) -> None:
    """A front end next door, a desktop application."""
    assert is_served(LOCAL, "127.0.0.1:4000", origin)


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "http://203.0.113.5",
        "http://evil.example:4000",
        "null",
        "http://localhost.evil.example",
        "https://u@evil.example",
    ],
)
def test_any_other_page_is_refused(origin: str) -> None:
    """Though it calls by the right name."""
    assert not is_served(LOCAL, "localhost:4000", origin)


def test_the_message_says_how_to_let_a_page_in() -> None:
    """With the name that is missing."""
    with pytest.raises(BadRequest, match=r"add 'ui\.example' to server\.allowed_hosts"):
        LOCAL.check({"host": "localhost", "origin": "https://ui.example"})


def test_hosts_of_the_configuration_are_served() -> None:
    """As names or globs; others still are not."""
    origins = Origins(("ui.example", "*.corp.example"))

    assert is_served(origins, "a.corp.example:80", "https://ui.example")
    assert not is_served(origins, "corp.example")


def test_what_is_refused_once_is_refused_again() -> None:
    """Only what is served is remembered, and not without end."""
    origins = Origins(("*.example",))
    assert all(is_served(origins, f"{number}.example") for number in range(1000))

    assert is_served(origins, "7.example")
    assert not is_served(origins, "evil.test")
    assert not is_served(origins, "evil.test")


@pytest.mark.parametrize(
    ("config", "served"),
    [
        ("{}", False),
        ("server: {host: localhost}", False),
        ("server: {host: 0.0.0.0}", True),
        ("teams: {red: {keys: ['${KEY}']}}", True),
        ("server: {allowed_hosts: ['*']}", True),
        ("server: {host: 0.0.0.0, allowed_hosts: [proxy.example]}", False),
        ("{server: {allowed_hosts: []}, teams: {red: {keys: ['${KEY}']}}}", False),
    ],
)
def test_pages_are_looked_at_where_nobody_is_asked_for_a_key(config: str, served: bool) -> None:
    """On an address of this machine alone; elsewhere when hosts are listed."""
    assert is_served(origins_of(load(config, KEYS)), "evil.example", "http://evil.example") is served
