"""Where a server listens: an address that is taken, or a sentence that says why not."""

import socket

import pytest

from proxy.errors import ConfigError
from proxy.listening import listen, url_of


def test_a_connection_waits_from_the_moment_the_address_is_taken() -> None:
    """A client that comes before the server is ready is served, not refused."""
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname(), timeout=5) as client:
        assert client.getpeername() == listener.getsockname()


def test_the_url_names_the_port_that_was_found() -> None:
    """With port 0 nobody could know it otherwise."""
    with listen("127.0.0.1", 0) as listener:
        assert url_of(listener) == f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.skipif(not socket.has_ipv6, reason="needs IPv6")
def test_an_ipv6_address_stands_in_brackets() -> None:
    """As URLs want it."""
    try:
        listener = listen("::1", 0)
    except ConfigError:
        pytest.skip("needs an IPv6 loopback")
    with listener:
        assert url_of(listener) == f"http://[::1]:{listener.getsockname()[1]}"


def test_a_port_in_use_is_named_with_the_way_out() -> None:
    """One sentence, not an error number."""
    with listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(ConfigError) as refused:
            listen("127.0.0.1", port)
    assert str(refused.value) == f"cannot listen on 127.0.0.1:{port}: another program uses that port; end it, or choose another port"


def test_an_address_of_another_machine_is_named() -> None:
    """192.0.2.0/24 is nobody's, by RFC 5737."""
    with pytest.raises(ConfigError, match=r"^cannot listen on 192\.0\.2\.1:0: .+; choose another address or port$"):
        listen("192.0.2.1", 0)
