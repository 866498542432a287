"""Where a server listens: an address taken before anything starts, or one sentence that says why it cannot be had."""

import errno
import socket

from proxy.errors import ConfigError

_BACKLOG = 2048


def listen(host: str, port: int) -> socket.socket:
    """A socket whose connections wait until a server takes them. port: 0 for any free one. Raises `ConfigError`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise ConfigError(f"cannot listen on {_place(host, port)}: {_why(error)}") from None


def url_of(listener: socket.socket) -> str:
    """`http://address:port` of a listening socket."""
    host, port, *_ = listener.getsockname()
    return f"http://{_place(host, port)}"


def _place(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _why(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "another program uses that port; end it, or choose another port"
    # What create_server adds to the system's words repeats the address.
    reason = (error.strerror or str(error)).partition(" (while attempting")[0]
    return f"{reason[:1].lower()}{reason[1:]}; choose another address or port"
