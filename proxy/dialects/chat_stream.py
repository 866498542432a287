"""Streamed chat-completions answers: following one chunk by chunk, and hiding the usage a client did not ask for."""

import re

from msgspec import Struct
from msgspec.json import Decoder

from proxy.dialects import sse
from proxy.dialects.chat_answer import BODY, CHOICES, MESSAGE, UsualWords, WireChoice, only_thought, usage_in
from proxy.dialects.chat_calls import CALLS, FUNCTION, CallMerger, WireCall
from proxy.dialects.raw_json import UNREADABLE, Count, present, read, text, whole
from proxy.models import Answer, Choice, Usage

DONE = b"[DONE]"
# A quote inside a string is escaped, so this can only be a member.
_NULL_USAGE = re.compile(rb',\s*"usage"\s*:\s*null|"usage"\s*:\s*null\s*,?')


# A chunk as the standard has it, but for the one with the usage: read at once, in a third of the time that it takes to ask of each value
# what it is. What is `None` here must be null or missing.


class _UsualDelta(UsualWords, gc=False):
    tool_calls: list[WireCall] | None = None


class _UsualChoice(Struct, gc=False):
    delta: _UsualDelta
    index: Count | None = None
    finish_reason: str | None = None
    usage: None = None


class _UsualChunk(Struct, gc=False):
    choices: list[_UsualChoice]
    id: str | None = None
    model: str | None = None
    created: Count | None = None
    usage: None = None
    error: None = None
    x_groq: None = None


_USUAL = Decoder(_UsualChunk)


class _ChoiceReader:
    """What one choice has said so far."""

    def __init__(self, begun: dict[str, int]) -> None:
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._shows = False
        self._calls = CallMerger(begun)
        self._legacy = CallMerger(begun)
        self.finish: str | None = None

    def add(self, said: str, thought: str, calls: list[WireCall] | None) -> None:
        """What a chunk adds; see `note` for what few have."""
        self._texts.append(said)
        if thought:
            self._thoughts.append(thought)
        for call in calls or ():
            self._calls.add(call)

    def note(self, function_call: bytes, *, shows: bool) -> None:
        self._shows = self._shows or shows
        if present(function_call):
            self._legacy.add(WireCall(function=FUNCTION.one(function_call)))

    def choice(self) -> Choice:
        calls = self._calls.calls() + self._legacy.calls()
        said = "".join(self._texts)
        return Choice(said, calls, self.finish, thought=only_thought("".join(self._thoughts), said, calls, shows=self._shows))


class ChatReader:
    """Implements `StreamReader`."""

    def __init__(self) -> None:
        self.begun: dict[str, int] = {}
        self.holds_call = False
        self.said = ""
        self._choices: dict[int, _ChoiceReader] = {}
        self._usage: Usage | None = None
        self._id: str | None = None
        self._model: str | None = None
        self._created: int | None = None
        self._calls_seen = False
        self._done = False
        self._error = False

    def feed(self, event: bytes) -> None:
        """Reads one event. From the first call on every event with data is one that `holds_call`; comments never are."""
        self.said = ""
        data = sse.data_of(event)
        if data is None:
            self.holds_call = False
            return
        self._error = self._error or sse.name_of(event) == b"error"
        ending = self._read(data)
        self.holds_call = self._calls_seen or ending

    def answer(self) -> Answer:
        choices = [self._choices[index] for index in sorted(self._choices)]
        ended = bool(choices) and all(choice.finish for choice in choices)
        return Answer(
            choices=tuple([choice.choice() for choice in choices]),
            usage=self._usage,
            id=self._id,
            model=self._model,
            created=self._created,
            complete=self._done or ended,
            error=self._error,
        )

    def sent(self, *, withheld: bool = True) -> None:
        """Chunks do not build on each other."""

    def _read(self, data: bytes) -> bool:
        """Reads one chunk; whether it belongs to the stream's end (a finish reason, usage without text, the terminator)."""
        if data.strip() == DONE:
            self._done = True
            return True
        try:
            chunk = _USUAL.decode(data)
        except UNREADABLE:
            return self._read_any(data)
        if not (self._id and self._model and self._created):
            self._read_head(chunk.id, chunk.model, chunk.created)
        finished = False
        for position, wire in enumerate(chunk.choices):
            index, finish, delta = position if wire.index is None else wire.index, wire.finish_reason, wire.delta
            choice = self._choice_at(index)
            if finish:
                finished = True
                self._finish(choice, finish)
            said = delta.content or ""
            if delta.refusal:
                said += delta.refusal
            choice.add(said, delta.reasoning_content or delta.reasoning or "", delta.tool_calls)
            if delta.tool_calls:
                self._calls_seen = True
            if index == 0:
                self.said += said
        return finished

    def _read_any(self, data: bytes) -> bool:
        """The same of a chunk that holds more, or some value of which is another than the standard has it."""
        try:
            chunk = read(BODY, data)
        except UNREADABLE:
            return False
        self._error = self._error or present(chunk.error)
        self._read_head(text(chunk.id), text(chunk.model), whole(chunk.created))
        choices = CHOICES.many(chunk.choices)
        usage = usage_in(chunk, choices)
        self._usage = usage or self._usage
        spoke = finished = False
        for position, choice in enumerate(choices):
            spoke = self._read_choice(choice, position) or spoke
            finished = finished or bool(text(choice.finish_reason))
        return finished or (usage is not None and not spoke)

    def _read_head(self, id: str | None, model: str | None, created: int | None) -> None:
        self._id = self._id or id or None
        self._model = self._model or model or None
        self._created = self._created or created

    def _choice_at(self, index: int) -> _ChoiceReader:
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = _ChoiceReader(self.begun)
        return choice

    def _finish(self, choice: _ChoiceReader, finish: str | None) -> None:
        choice.finish = choice.finish or finish
        self._error = self._error or finish == "error"

    def _read_choice(self, wire: WireChoice, position: int) -> bool:
        """Adds what a chunk says in one choice; whether that is text."""
        index = whole(wire.index)
        index = position if index is None else index
        choice = self._choice_at(index)
        self._finish(choice, text(wire.finish_reason))
        delta = MESSAGE.one(wire.delta)
        calls = CALLS.many(delta.tool_calls)
        said = delta.text()
        choice.add(said, delta.thought(), calls)
        choice.note(delta.function_call, shows=delta.shows())
        self._calls_seen = self._calls_seen or bool(calls) or present(delta.function_call)
        if index == 0:
            self.said += said
        return bool(said)


def without_usage(event: bytes) -> bytes:
    """An event as it is without `include_usage`: b"" for the chunk that holds only usage, and no `"usage": null` in the others.

    Usage that comes together with a choice stays, for there the upstream would have sent it anyway.
    """
    if event.find(b'"usage"') < 0:
        return event
    data = sse.data_of(event)
    if data is None:
        return event
    try:
        chunk = read(BODY, data)
    except UNREADABLE:
        return event
    if present(chunk.usage):
        alone = not CHOICES.many(chunk.choices) and not present(chunk.error)
        return b"" if alone else event
    found = _NULL_USAGE.findall(event)
    # More than one, and the other is somewhere inside: a null too many does no harm.
    return event.replace(found[0], b"", 1) if chunk.usage and len(found) == 1 else event
