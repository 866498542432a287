"""Streamed Responses answers: following one event by event, and what is left of one when calls are taken out.

Each item is announced, filled and ended by events of its own, and the last event repeats all of them. Who changes one must change it
in all these places, and number what follows anew.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.json import Decoder, encode

from proxy.dialects import notice as lastcall
from proxy.dialects import sse
from proxy.dialects.raw_json import FIELDS, UNREADABLE, members_of, object_of, plain, present, quoted, read, text, whole
from proxy.dialects.responses_answer import BODIES, Body, choice_of, created_of, finish_of, places_without, pruned_output, read_usage
from proxy.dialects.responses_items import ITEMS, MESSAGE, WireItem, call_of, kind_of, list_in, texts_of
from proxy.dialects.responses_render import Events, Part, Shown, Standing, stream_end
from proxy.dialects.searches import with_searches
from proxy.models import Answer, Head, Notice, Usage

RESPONSE = b'"output"'  # a member of the response that every last event carries; those that open a stream carry one too
_LAST = ("response.completed", "response.incomplete", "response.failed")
_SAID = {"response.output_text": "text", "response.refusal": "refusal"}
_ASKED = {"response.function_call_arguments": "arguments", "response.custom_tool_call_input": "input"}


class _Event(Struct, gc=False):
    type: Any = None
    sequence_number: Any = None
    output_index: Any = None
    content_index: Any = None
    item_id: Any = None
    item: Raw = Raw()
    delta: Any = None
    text: Any = None
    refusal: Any = None
    arguments: Any = None
    input: Any = None
    response: Raw = Raw()
    error: Raw = Raw()


_EVENT = Decoder(_Event)


class _Draft:
    """An item of which not everything may have come yet. at: the event it began with; asked: pieces of a call's arguments.

    said: pieces of a message's parts, by place and kind.
    """

    __slots__ = ("asked", "at", "done", "index", "item", "kind", "named", "raw", "said")

    def __init__(self, index: int, at: int) -> None:
        self.index = index
        self.at = at
        self.raw = b"{}"
        self.item = WireItem()
        self.kind = ""
        self.named = False
        self.done = False
        self.asked: list[str] = []
        self.said: dict[tuple[int, str], list[str]] = {}

    def take(self, raw: bytes, *, done: bool) -> None:
        """The item as an event shows it."""
        if self.done:
            return
        self.raw, self.item, self.done = raw, ITEMS.one(raw), done
        self.kind = kind_of(self.item)

    def filled(self) -> WireItem:
        """The item with what its own events said, where it does not say so itself."""
        return self.item if self._is_whole() else ITEMS.one(self._filled())

    def shown(self) -> Shown:
        """The item as far as it has come."""
        return Shown(self.index, self.raw) if self.done else Shown(self.index, self._filled(), True, self._parts())

    def _is_whole(self) -> bool:
        if self.kind == MESSAGE:
            return not self.said or (self.done and bool(texts_of(self.item.content)))
        call = call_of(self.item, self.kind) if self.asked else None
        return call is None or (self.done and bool(call.arguments))

    def _parts(self) -> tuple[Part, ...]:
        return tuple([Part(index, kind, "".join(pieces)) for (index, kind), pieces in sorted(self.said.items())])

    def _filled(self) -> bytes:
        members = members_of(self.raw)
        if self.kind == MESSAGE and self.said:
            members["content"] = Raw(encode([part.wire() for part in self._parts()]))
        elif self.asked:
            members["input" if self.kind == "custom_tool_call" else "arguments"] = Raw(quoted("".join(self.asked)))
        if "status" in members:
            members["status"] = Raw(b'"completed"')
        return object_of(members)


class ResponsesReader:
    """Implements `StreamReader`."""

    def __init__(self) -> None:
        self.begun: dict[str, int] = {}
        self.holds_call = False
        self.said = ""
        self._adds: list[str] | None = None  # the pieces that the event just fed added to
        self._fed = 0
        self._drafts: dict[int, _Draft] = {}
        self._latest: _Draft | None = None
        self._number = self._number_before = -1
        self._response = b""
        self._usage: Usage | None = None
        self._id: str | None = None
        self._model: str | None = None
        self._created: int | None = None
        self._finish: str | None = None
        self._called = False
        self._done = False
        self._error = False

    def feed(self, event: bytes) -> None:
        """Reads one event. From the first call on every event with data is one that `holds_call`; comments never are."""
        self._fed += 1
        self._number_before = self._number
        self.said, self._adds = "", None
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
            number = whole(wire.sequence_number)
            self._number = self._number + 1 if number is None else number
            ending = self._read(wire, text(wire.type) or sse.name_of(event).decode("utf-8", "replace"))
        self.holds_call = self._called or ending

    def answer(self) -> Answer:
        drafts = self._in_order()
        choices = (choice_of([draft.filled() for draft in drafts], self._finish),) if self._id or drafts or self._done else ()
        return Answer(
            choices=choices,
            usage=with_searches(self._usage, choices),
            id=self._id,
            model=self._model,
            created=self._created,
            complete=self._done,
            error=self._error,
        )

    def sent(self, *, withheld: bool = True) -> Standing:
        """Where the stream stood before the event just fed, or behind it."""
        if not withheld:
            return self._standing(self._in_order(), self._number + 1)
        added = self._adds.pop() if self._adds is not None else None
        standing = self._standing([draft for draft in self._in_order() if draft.at < self._fed], self._number_before + 1)
        if self._adds is not None and added is not None:
            self._adds.append(added)
        return standing

    def rest(self, head: Head, held: Sequence[bytes], dropped: Collection[int], notice: Notice, standing: Standing) -> bytes:
        """The events held after `standing`, as they came but without the calls at these positions; with an end where none came."""
        drafts = self._in_order()
        shown = {item.index for item in standing.shown}
        gone = {drafts[place].index for place in places_without([draft.item for draft in drafts], dropped)} - shown
        events, ended = Events(standing.number), False
        for event in held:
            ended = _pass_on(events, event, gone, dropped, head, notice) or ended
        if ended:
            return events.bytes()
        kept = self._standing([draft for draft in drafts if draft.index not in gone], events.number)
        items = tuple([msgspec.structs.replace(item, index=_moved(item.index, gone)) for item in kept.shown])
        return events.bytes() + stream_end(head, self._usage, notice, msgspec.structs.replace(kept, shown=items))

    def _in_order(self) -> list[_Draft]:
        return [self._drafts[index] for index in sorted(self._drafts)]

    def _standing(self, drafts: Iterable[_Draft], number: int) -> Standing:
        shown = tuple([draft.shown() for draft in drafts])
        spoke = bool(choice_of([ITEMS.one(item.raw) for item in shown], None).text)
        return Standing(number, self._response, shown, spoke)

    def _read(self, wire: _Event, kind: str) -> bool:
        """Reads one event; whether it is the stream's last."""
        subject, _, verb = kind.rpartition(".")
        if verb == "delta":
            self._add(wire, subject, text(wire.delta))
        elif kind in ("response.output_item.added", "response.output_item.done"):
            self._take(self._draft(wire), bytes(wire.item), done=verb == "done")
        elif kind in _LAST:
            self._end(BODIES.one(wire.response), kind)
            return True
        elif verb == "done":
            self._fill(wire, subject)
        elif present(wire.response):
            self._response = self._response or bytes(wire.response)
            self._read_head(BODIES.one(wire.response))
        else:
            self._error = self._error or kind == "error" or present(wire.error)
        return False

    def _draft(self, wire: _Event) -> _Draft:
        """The item that an event is about: by its place, else by its id, else the latest or, where one is announced, a new one."""
        index = whole(wire.output_index)
        if index is None and wire.item_id is not None:
            index = next((draft.index for draft in self._drafts.values() if draft.item.id == wire.item_id), None)
        if index is None and self._latest is not None and not (wire.item and self._latest.done):
            index = self._latest.index
        if index is None:
            index = len(self._drafts)
        draft = self._drafts.get(index)
        if draft is None:
            draft = self._drafts[index] = _Draft(index, self._fed)
        self._latest = draft
        return draft

    def _take(self, draft: _Draft, raw: bytes, *, done: bool) -> None:
        draft.take(raw, done=done)
        call = None if draft.named else call_of(draft.item, draft.kind)
        if call is not None:
            self._called = True
            if call.name or done:
                draft.named = True
                self.begun[call.name] = self.begun.get(call.name, 0) + 1

    def _add(self, wire: _Event, subject: str, piece: str | None) -> None:
        if piece is None:
            return
        if subject in _SAID:
            self.said = piece
            self._adds = self._draft(wire).said.setdefault((whole(wire.content_index) or 0, _SAID[subject]), [])
            self._adds.append(piece)
        elif subject in _ASKED:
            self._called = True  # some servers do not announce the item
            self._draft(wire).asked.append(piece)

    def _fill(self, wire: _Event, subject: str) -> None:
        """The end of a part or of arguments repeats them whole: for servers that did not send them in pieces."""
        if subject in _SAID:
            key = (whole(wire.content_index) or 0, _SAID[subject])
            whole_text = text(wire.refusal if subject.endswith("refusal") else wire.text)
            said = self._draft(wire).said
            if whole_text is not None and key not in said:
                self.said = whole_text
                self._adds = said[key] = [whole_text]
        elif subject in _ASKED:
            self._called = True
            asked = text(wire.input if subject.endswith("input") else wire.arguments)
            draft = self._draft(wire)
            if asked is not None and not draft.asked:
                draft.asked.append(asked)

    def _read_head(self, body: Body) -> None:
        self._id = self._id or text(body.id)
        self._model = self._model or text(body.model)
        self._created = created_of(body) if self._created is None else self._created

    def _end(self, body: Body, kind: str) -> None:
        """The last event repeats the items: those that had no events of their own are taken from there."""
        self._read_head(body)
        self._done = True
        self._usage = read_usage(body.usage, body.service_tier) or self._usage
        self._finish = finish_of(body) or kind.rpartition(".")[2]
        self._error = self._error or kind == "response.failed" or present(body.error)
        known = {text(draft.item.id) for draft in self._drafts.values()} - {None}
        for place, raw in enumerate(list_in(body.output)):
            if place not in self._drafts and text(ITEMS.one(raw).id) not in known:
                self._drafts[place] = _Draft(place, self._fed)
            if place in self._drafts:
                self._take(self._drafts[place], bytes(raw), done=True)


def last_response(event: bytes) -> bytes:
    """The whole response, where an event is the last of a stream and carries it; else b""."""
    if not any(kind.encode() in event for kind in _LAST):
        return b""
    try:
        wire = read(_EVENT, sse.data_of(event) or b"")
    except UNREADABLE:
        return b""
    return bytes(wire.response) if (text(wire.type) or sse.name_of(event).decode("utf-8", "replace")) in _LAST else b""


def _moved(index: int, gone: Collection[int]) -> int:
    """The place of an item when these are gone."""
    return index - sum(1 for other in gone if other < index)


def _pass_on(events: Events, event: bytes, gone: Collection[int], dropped: Collection[int], head: Head, notice: Notice) -> bool:
    """Writes a held event as it is without the items that are gone; whether it is the stream's last."""
    data = sse.data_of(event)
    try:
        members = read(FIELDS, data or b"")
    except UNREADABLE:
        events.keep(event)
        return False
    index = whole(plain(members.get("output_index", b"")))
    if index in gone:
        return False
    if index is not None:
        members["output_index"] = Raw(b"%d" % _moved(index, gone))
    name = sse.name_of(event)
    kind = text(plain(members.get("type", b""))) or name.decode("utf-8", "replace")
    last = kind in _LAST and bytes(members.get("response", b"")).startswith(b"{")
    if last:
        response = members_of(members["response"])
        if bytes(response.get("output", b"")).startswith(b"["):
            response["output"] = Raw(pruned_output(response["output"], dropped, notice, head))
        members |= {"response": Raw(object_of(response | {"lastcall": lastcall.raw(notice)})), "lastcall": lastcall.raw(notice)}
    events.put(name, members)
    return last
