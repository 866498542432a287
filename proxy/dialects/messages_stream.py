"""Streamed messages answers: following one event by event.

Blocks come one after another, each opened, filled and closed. Who ends a stream must know which is open and which number is next, since
clients keep blocks by their number.
"""

from typing import Any

from msgspec import Raw, Struct
from msgspec.json import Decoder

from proxy.dialects import sse
from proxy.dialects.messages_answer import MESSAGE, read_usage
from proxy.dialects.messages_blocks import CALL, HOSTED, TEXT, THINKING, Block, call_of, joined_texts, only_thoughts
from proxy.dialects.raw_json import UNREADABLE, Shape, present, read, text, whole
from proxy.models import Answer, Choice, ToolCall, Usage

END = b"message_stop"


class Standing(Struct, frozen=True, gc=False):
    """How far a stream has come. next: the number of the next block; open: the number of the one that is not closed yet.

    spoke: text was among what came. blank: the open block is a text that says nothing yet.
    """

    next: int = 0
    open: int | None = None
    spoke: bool = False
    blank: bool = False


class _Delta(Struct, gc=False):
    type: Any = None
    text: Any = None
    thinking: Any = None
    partial_json: Any = None
    stop_reason: Any = None


class _Event(Struct, gc=False):
    type: Any = None
    index: Any = None
    message: Raw = Raw()
    content_block: Raw = Raw()
    delta: Raw = Raw()
    usage: Raw = Raw()
    error: Raw = Raw()


class _Draft(Struct):
    """A block of which not everything may have come yet. pieces: of its text, or of its arguments as they are streamed."""

    block: Block
    pieces: list[str]

    def call(self) -> ToolCall:
        """The call it makes: arguments from the pieces, else those it was opened with."""
        streamed = "".join(self.pieces)
        return call_of(self.block, streamed if streamed.strip() else "")


_EVENT = Decoder(_Event)
_DELTA = Shape(_Delta)
_BLOCK = Shape(Block)


class MessagesReader:
    """Implements `StreamReader`."""

    def __init__(self) -> None:
        self.begun: dict[str, int] = {}
        self.holds_call = False
        self.said = ""
        self._drafts: dict[int, _Draft] = {}
        self._standing = self._before = Standing()
        self._usage: Usage | None = None
        self._id: str | None = None
        self._model: str | None = None
        self._finish: str | None = None
        self._called = False
        self._done = False
        self._error = False

    def feed(self, event: bytes) -> None:
        """Reads one event. From the first call on every event with data is one that `holds_call`; comments never are."""
        self._before, self.said = self._standing, ""
        data = sse.data_of(event)
        if data is None:
            self.holds_call = False
            return
        ending = False
        try:
            wire = read(_EVENT, data)
        except UNREADABLE:
            pass
        else:
            ending = self._read(wire, str(wire.type or sse.name_of(event).decode("utf-8", "replace")))
        self.holds_call = self._called or ending

    def answer(self) -> Answer:
        drafts = [self._drafts[index] for index in sorted(self._drafts)]
        texts, thoughts = (["".join(draft.pieces) for draft in drafts if draft.block.type == kind] for kind in (TEXT, THINKING))
        calls = [draft.call() for draft in drafts if draft.block.type == CALL]
        hosted = [draft.call() for draft in drafts if draft.block.type in HOSTED]
        thought = only_thoughts([draft.block for draft in drafts], texts, thoughts)
        choice = Choice(joined_texts(texts), tuple(calls), self._finish, tuple(hosted), thought=thought)
        return Answer(
            choices=(choice,) if self._id or self._drafts or self._finish else (),
            usage=self._usage,
            id=self._id,
            model=self._model,
            complete=self._done or self._finish is not None,
            error=self._error,
        )

    def calls_at(self) -> list[int]:
        """The numbers of the blocks that are calls, in their order."""
        return [index for index in sorted(self._drafts) if self._drafts[index].block.type == CALL]

    def sent(self, *, withheld: bool = True) -> Standing:
        """Where the stream stood before the event just fed, or behind it."""
        return self._before if withheld else self._standing

    def _read(self, wire: _Event, kind: str) -> bool:
        """Reads one event; whether it belongs to the stream's end."""
        match kind:
            case "content_block_delta":
                self._add(_DELTA.one(wire.delta), whole(wire.index))
            case "content_block_start":
                self._open(_BLOCK.one(wire.content_block), whole(wire.index))
            case "content_block_stop":
                self._standing = Standing(self._standing.next, None, self._standing.spoke)
            case "message_start":
                self._begin(wire.message)
            case "message_delta":
                self._finish = text(_DELTA.one(wire.delta).stop_reason) or self._finish
                self._usage = read_usage(wire.usage, self._usage)
                return True
            case "message_stop":
                self._done = True
                return True
            case _:
                self._error = self._error or kind == "error" or present(wire.error)
        return False

    def _begin(self, message: bytes) -> None:
        body = MESSAGE.one(message)
        self._id, self._model = self._id or text(body.id), self._model or text(body.model)
        self._usage = read_usage(body.usage, self._usage)

    def _open(self, block: Block, index: int | None) -> None:
        number = self._standing.next if index is None else index
        spoke = self._standing.spoke or bool(text(block.text))
        blank = block.type == TEXT and not text(block.text)
        self._standing = Standing(max(number + 1, self._standing.next), number, spoke, blank)
        if block.type == CALL:
            self._called = True
            name = text(block.name) or ""
            self.begun[name] = self.begun.get(name, 0) + 1
            self._drafts[number] = _Draft(block, [])
        elif block.type == TEXT:
            self.said = text(block.text) or ""
            self._drafts[number] = _Draft(block, [self.said])
        else:
            self._drafts[number] = _Draft(block, [text(block.thinking) or ""])

    def _add(self, delta: _Delta, index: int | None) -> None:
        number = self._standing.open if index is None else index
        draft = self._drafts.get(number) if number is not None else None
        if draft is None:
            return
        piece = text(delta.text if draft.block.type == TEXT else delta.thinking if draft.block.type == THINKING else delta.partial_json)
        if piece is not None:
            draft.pieces.append(piece)
            if draft.block.type == TEXT:
                self.said = piece
                self._standing = Standing(self._standing.next, self._standing.open, True)
