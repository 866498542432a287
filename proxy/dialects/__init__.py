"""Wire formats: what a path speaks, how to read it, and how to change as little of it as possible.

Everything in here is pure and works on bytes. A dialect is one file and one line in `DIALECTS`; the rules about loops never see
which one a request spoke.
"""

from collections.abc import Collection, Sequence
from typing import Protocol

from proxy.dialects.chat import Chat
from proxy.dialects.messages import Messages
from proxy.dialects.responses import Responses
from proxy.models import Answer, Begun, Edits, Head, Notice, Request, ToolCall, Usage


class StreamReader(Protocol):
    """Follows one streamed answer, event by event. Never raises on any bytes.

    `begun` counts, per tool name, the calls whose first fragment has been seen in any choice; `holds_call` says whether the event
    just fed begins or continues a tool call or comes after one (finish, usage, terminator), that is, whether an armed stream
    must hold it back. `said` is the text that this event added, of the first choice.
    """

    begun: dict[str, int]
    holds_call: bool
    said: str

    def feed(self, event: bytes) -> None:
        """Reads one whole SSE event, its blank line included."""
        ...

    def answer(self) -> Answer:
        """What has been said so far; `complete` once the stream ended as the dialect ends one."""
        ...

    def sent(self, *, withheld: bool = True) -> object:
        """Where the stream stood before the event just fed, for `stream_tail` when this event is the first that is withheld.

        withheld: False where that event went out too. A value of the dialect's own, None where it needs none.
        """
        ...


class Dialect(Protocol):
    """The contract; `tests/contract/test_dialect.py` runs on every implementation.

    keep_alive: bytes a client ignores in a stream. terminator: bytes that stand in the last event of every complete stream. id_prefix:
    begins the id of an answer that Lastcall makes. listed: the member of a body whose list is the history. fails_midway: a stream that was
    begun can end in an error that ends the client's run too; else the client asks once more for the whole answer.
    """

    name: str
    listed: str
    id_prefix: str
    keep_alive: bytes
    fails_midway: bool
    terminator: bytes

    def parse(self, body: bytes) -> Request:
        """Raises `BadRequest` (naming the place) on bytes that are not a request of this dialect."""
        ...

    def grow(self, request: Request, body: bytes, elements: bytes) -> Request | None:
        """What `parse` makes of a body that is the request's with these further elements (a JSON list) at the end of its history.

        None where they may have to be read with what stands before them, or are no such list.
        """
        ...

    def rewrite(self, request: Request, edits: Edits) -> bytes:
        """The body with the edits made and every other value byte for byte as it was; `request.body` itself without edits."""
        ...

    def read_answer(self, body: bytes) -> Answer:
        """Reads a whole (non-streamed) answer. Never raises; what cannot be read is an incomplete answer."""
        ...

    def reader(self) -> StreamReader: ...

    def without_usage(self, event: bytes) -> bytes:
        """An event as a client that did not ask for usage would have got it: b"" for the usage-only event."""
        ...

    def prune(self, body: bytes, drop: Collection[tuple[int, int]], notice: Notice) -> bytes:
        """A whole answer without some calls, as (choice, call) positions; all else as it was, plus the notice."""
        ...

    def completion(
        self, head: Head, text: str, usage: Usage | None, notice: Notice, choices: int, calls: tuple[ToolCall, ...] = ()
    ) -> bytes:
        """A whole answer with this text, or making these calls, finished normally."""
        ...

    def stream_tail(self, begun: Begun, text: str, calls: tuple[ToolCall, ...], usage: Usage | None, notice: Notice | None) -> bytes:
        """The events that bring a stream to its end: text, then calls, then finish, usage (if given) and terminator.

        The notice stands in the last data event.
        """
        ...

    def stream_rest(
        self,
        begun: Begun,
        answer: Answer,
        usage: Usage | None,
        notice: Notice,
        *,
        drop: Collection[tuple[int, int]],
        held: Sequence[bytes],
        reader: StreamReader,
    ) -> bytes:
        """What was held of a stream when calls are left out of it: brought to an end like a tail, or edited where that keeps more of it.

        answer: what is left of it. drop: the calls that are not, as (choice, call) positions. usage: what the client is to see of it, where
        that is its choice. held: events that did not go out. reader: has read all of them.
        """
        ...

    def stream_error(self, code: str, message: str, notice: Notice | None, begun: Begun | None = None) -> bytes:
        """The events that end a stream with an error that clients show and do not retry. begun: where it is known, what it is."""
        ...

    def error(self, status: int, code: str, message: str, notice: Notice | None) -> bytes:
        """The body of an error response in this dialect's shape."""
        ...


DIALECTS: dict[str, Dialect] = {"/chat/completions": Chat(), "/responses": Responses(), "/messages": Messages()}
