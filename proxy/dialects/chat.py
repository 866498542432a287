"""The chat-completions dialect: `POST /v1/chat/completions`, as OpenAI defines it and as the many servers speak it.

This is its table of contents; the work is in `chat_request`, `chat_answer`, `chat_stream` and `chat_render`.
"""

from collections.abc import Collection, Sequence

import msgspec

from proxy.dialects import chat_answer, chat_render, chat_request, chat_stream
from proxy.models import Answer, Begun, Head, Notice, ToolCall, Usage


class Chat:
    """Implements `Dialect`."""

    name = "chat"
    listed = "messages"
    id_prefix = "chatcmpl-lastcall-"
    keep_alive = chat_render.KEEP_ALIVE
    fails_midway = True
    terminator = chat_stream.DONE

    parse = staticmethod(chat_request.parse_request)
    grow = staticmethod(chat_request.grow_request)
    rewrite = staticmethod(chat_request.rewrite_request)
    read_answer = staticmethod(chat_answer.read_answer)
    prune = staticmethod(chat_answer.prune)

    def reader(self) -> chat_stream.ChatReader:
        return chat_stream.ChatReader()

    def without_usage(self, event: bytes) -> bytes:
        return chat_stream.without_usage(event)

    def completion(
        self, head: Head, text: str, usage: Usage | None, notice: Notice, choices: int, calls: tuple[ToolCall, ...] = ()
    ) -> bytes:
        return chat_render.completion(head, text, usage, notice, choices, calls)

    def stream_tail(self, begun: Begun, text: str, calls: tuple[ToolCall, ...], usage: Usage | None, notice: Notice | None) -> bytes:
        return chat_render.stream_tail(begun, text, calls, usage, notice)

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
        calls = () if begun.called else answer.choices[0].calls
        return chat_render.stream_tail(msgspec.structs.replace(begun, choices=len(answer.choices)), "", calls, usage, notice)

    def stream_error(self, code: str, message: str, notice: Notice | None, begun: Begun | None = None) -> bytes:
        return chat_render.stream_error(code, message, notice)

    def error(self, status: int, code: str, message: str, notice: Notice | None) -> bytes:
        return chat_render.error(status, code, message, notice)
