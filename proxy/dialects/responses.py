"""The Responses dialect: `POST /v1/responses`, as OpenAI defines it and as the servers that follow it speak it.

This is its table of contents; the work is in `responses_request`, `responses_answer`, `responses_stream` and `responses_render`, and what
an item is stands in `responses_items`.
"""

from collections.abc import Collection, Sequence

from proxy.dialects import chat_render, responses_answer, responses_render, responses_request, responses_stream
from proxy.dialects.responses_render import standing_of
from proxy.models import Answer, Begun, Head, Notice, ToolCall, Usage


class Responses:
    """Implements `Dialect`."""

    name = "responses"
    listed = "input"
    id_prefix = "resp_lastcall_"
    keep_alive = responses_render.KEEP_ALIVE
    fails_midway = True
    terminator = responses_stream.RESPONSE

    parse = staticmethod(responses_request.parse_request)
    grow = staticmethod(responses_request.grow_request)
    rewrite = staticmethod(responses_request.rewrite_request)
    read_answer = staticmethod(responses_answer.read_answer)
    prune = staticmethod(responses_answer.prune)

    def reader(self) -> responses_stream.ResponsesReader:
        return responses_stream.ResponsesReader()

    def without_usage(self, event: bytes) -> bytes:
        """Every stream of this dialect ends with its usage."""
        return event

    def completion(
        self, head: Head, text: str, usage: Usage | None, notice: Notice, choices: int, calls: tuple[ToolCall, ...] = ()
    ) -> bytes:
        return responses_render.completion(head, text, usage, notice, calls)

    def stream_tail(self, begun: Begun, text: str, calls: tuple[ToolCall, ...], usage: Usage | None, notice: Notice | None) -> bytes:
        return responses_render.stream_tail(begun, text, calls, usage, notice)

    def stream_rest(
        self,
        begun: Begun,
        answer: Answer,
        usage: Usage | None,
        notice: Notice,
        *,
        drop: Collection[tuple[int, int]],
        held: Sequence[bytes],
        reader: object,
    ) -> bytes:
        assert isinstance(reader, responses_stream.ResponsesReader)
        return reader.rest(begun.head, held, {call for choice, call in drop if choice == 0}, notice, standing_of(begun))

    def stream_error(self, code: str, message: str, notice: Notice | None, begun: Begun | None = None) -> bytes:
        return responses_render.stream_error(code, message, notice, begun)

    def error(self, status: int, code: str, message: str, notice: Notice | None) -> bytes:
        return chat_render.error(status, code, message, notice)
