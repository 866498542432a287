"""The messages dialect: `POST /v1/messages`, as Anthropic defines it and as other servers speak it.

This is its table of contents; the work is in `messages_request`, `messages_answer`, `messages_stream`, `messages_rest` and
`messages_render`.
"""

from collections.abc import Collection, Sequence
from typing import Any

from proxy.dialects import messages_answer, messages_render, messages_request, messages_rest, messages_stream
from proxy.models import Answer, Begun, Head, Notice, ToolCall, Usage


class Messages:
    """Implements `Dialect`. An answer of this dialect has one choice, and a stream always says what it cost."""

    name = "messages"
    listed = "messages"
    id_prefix = "msg_lastcall_"
    keep_alive = messages_render.KEEP_ALIVE
    fails_midway = False
    terminator = messages_stream.END

    parse = staticmethod(messages_request.parse_request)
    grow = staticmethod(messages_request.grow_request)
    rewrite = staticmethod(messages_request.rewrite_request)
    read_answer = staticmethod(messages_answer.read_answer)
    prune = staticmethod(messages_answer.prune)

    def reader(self) -> messages_stream.MessagesReader:
        return messages_stream.MessagesReader()

    def without_usage(self, event: bytes) -> bytes:
        return event

    def completion(
        self, head: Head, text: str, usage: Usage | None, notice: Notice, choices: int, calls: tuple[ToolCall, ...] = ()
    ) -> bytes:
        return messages_render.completion(head, text, usage, notice, calls)

    def stream_tail(self, begun: Begun, text: str, calls: tuple[ToolCall, ...], usage: Usage | None, notice: Notice | None) -> bytes:
        return messages_render.stream_tail(begun, text, calls, usage, notice)

    def stream_rest(
        self,
        begun: Begun,
        answer: Answer,
        usage: Usage | None,
        notice: Notice,
        *,
        drop: Collection[tuple[int, int]],
        held: Sequence[bytes],
        reader: Any,
    ) -> bytes:
        calls = answer.choices[0].calls
        numbers, out = reader.calls_at(), messages_render.standing_of(begun).next
        gone = {numbers[call] for choice, call in drop if choice == 0 and call < len(numbers) and numbers[call] >= out}
        edited = messages_rest.without_blocks(held, gone, notice, called=begun.called or bool(calls))
        if edited is not None:
            return edited
        return self.stream_tail(begun, "", () if begun.called else calls, usage, notice)

    def stream_error(self, code: str, message: str, notice: Notice | None, begun: Begun | None = None) -> bytes:
        return messages_render.stream_error(code, message, notice)

    def error(self, status: int, code: str, message: str, notice: Notice | None) -> bytes:
        return messages_render.error(status, code, message, notice)
