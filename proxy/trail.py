"""What a request's history says was called and what came back, and the trail that detectors read.

`read` turns a request into a `History`: the assistant messages in order, each call with the result that answers it. Nothing is looked
up here: what only a session knows (results as first seen, calls from before a compaction) is joined in `state`, which yields a `Trail`.
"""

import re
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import overload

import msgspec

from proxy.effects import Offer
from proxy.fingerprint import UNSEEN, Fingerprints, Hash, ended, packed
from proxy.models import HOSTED, Groundwork, Item, Request, Role, ToolCall, text_of
from proxy.outcomes import FAILED, VOID

STOP_MARK = "[lastcall stop]"
_STOP_MARK = STOP_MARK.encode()
_SYSTEM, _USER, _ASSISTANT, _TOOL = Role.SYSTEM, Role.USER, Role.ASSISTANT, Role.TOOL  # looking a member up costs more than comparing

_GONE = Item(_SYSTEM)  # in the place of an item that is known from before
_EMPTY = b'""'  # what a result says that says nothing


class SeenCall(msgspec.Struct, gc=False):
    """A call as a history shows it. content: the result's raw JSON, b"" while there is none; item: where that result stands.

    exact: the identity of that content by its bytes, where it is known already.
    """

    fingerprint: int
    name: str
    id: str | None
    content: bytes = b""
    item: int = -1
    failed: bool = False
    exact: int = UNSEEN


class Message(msgspec.Struct, frozen=True, gc=False):
    """One assistant message. answer: its identity. item: where it stands. last_item: where the last result that the client brings stands.

    -1: nowhere.
    """

    answer: int
    calls: tuple[SeenCall, ...]
    item: int
    last_item: int


class UserText(msgspec.Struct, frozen=True, gc=False):
    """A user item: where it stands, how many assistant messages come before it, and whether the nearest one made no call.

    mark: then also the identity of its text, 0 of the others.
    """

    item: int
    before: int
    follows_answer: bool
    mark: int = 0


class Earlier(msgspec.Struct, frozen=True, gc=False):
    """An assistant message that a request does not carry, as it is remembered. answer: its identity. place: where the upstream keeps it.

    calls: their fingerprints; names: their tools; ids: marks of their ids, none where they are not known any more. said: mark of its text,
    0 where that is not known any more. result: index of the last item that is a result of it, where the request says it again; else -1.
    """

    answer: int
    place: int = 0
    calls: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    ids: tuple[int, ...] = ()
    said: int = 0
    result: int = -1


class Past(msgspec.Struct, frozen=True, gc=False):
    """What went before the items of a request, at the upstream. seed: of the first user text. tokens: what reading it costs, at most.

    since: index of the first item that it did not go before.
    """

    messages: tuple[Earlier, ...] = ()
    seed: int = 0
    tokens: int = 0
    since: int = 0


class Messages(Sequence[Message]):
    """The assistant messages of a history, and who else spoke. Identities are at hand; the rest of a message is read when it is looked at.

    Of the many turns that come back in every request only the newest are ever looked at. answers: identity of each message. made: its
    calls as they were made. fingerprints: theirs. users: the user items. earlier: the first messages, of which only the last can have
    results in the request. times: how often each call was made; again: how many calls were not the first of their kind. begun: how many of
    the messages were those of the request that this one goes on from. line: of their identities. joined: what a record made of them.
    over: nobody looks at them any more, so that those of the request that goes on from this one may take their place.
    """

    __slots__ = (
        "_newest",
        "_read",
        "_starts",
        "again",
        "answers",
        "begun",
        "earlier",
        "fingerprints",
        "items",
        "joined",
        "line",
        "made",
        "over",
        "times",
        "users",
    )

    answers: list[int]
    made: list[tuple[ToolCall, ...]]
    fingerprints: list[tuple[int, ...]]
    users: tuple[UserText, ...]
    times: dict[int, int]
    _read: dict[int, Message]
    line: Hash
    _newest: dict[int, int]  # exact identities of what follows the last message, by its items

    def __init__(
        self, items: Sequence[Item], prints: Fingerprints, earlier: tuple[Earlier, ...] = (), before: "Messages | None" = None
    ) -> None:
        """before: those of a request without `earlier` that these items may go on from."""
        self.items, self.earlier, self._read, self._newest, self.over = items, earlier, {}, {}, False
        if before is not None:
            first = self._go_on_from(before, prints)
        else:
            first, self.begun, self.users, self.joined = 0, 0, (), Groundwork()
            self._starts = [-1] * len(earlier)
            self.made = [_remembered_calls(message, items, prints) for message in earlier]
            self.answers = [message.answer for message in earlier]
            self.fingerprints = [message.calls for message in earlier]
            self.times, self.again, self.line = {}, 0, prints.line(*self.answers)
            self._count(self.fingerprints)
        self._add(first, prints)

    def _go_on_from(self, before: "Messages", prints: Fingerprints) -> int:
        """Takes over what was read of the items that both begin with: how many these are."""
        items, known = self.items, before.items
        shared = len(known) if len(known) <= len(items) else len(items)
        while shared and items[shared - 1] is not known[shared - 1]:  # one history was read on from the other
            shared -= 1
        all_of_it = shared == len(known)
        self.begun = begun = len(before.answers) if all_of_it else bisect_left(before._starts, shared)
        self.joined, self.again = Groundwork(None, before.joined.own), before.again
        if all_of_it and before.over:  # nearly always: what is there is added to, and not one of it touched
            self._starts, self.made, self.answers, self.fingerprints = before._starts, before.made, before.answers, before.fingerprints
            self.times, self.users, self.line = before.times, before.users, before.line
            return shared
        self._starts, self.made = before._starts[:begun], before.made[:begun]
        self.answers, self.fingerprints = before.answers[:begun], before.fingerprints[:begun]
        self.times = before.times.copy()
        if all_of_it:
            self.users, self.line = before.users, before.line.copy()
        else:
            self.users, self.line = tuple([user for user in before.users if user.item < shared]), prints.line(*self.answers)
            self._uncount(before.fingerprints[begun:])
        return shared

    def _add(self, first: int, prints: Fingerprints) -> None:
        """Reads the items from `first` on."""
        starts, made, answers, fingerprints = self._starts, self.made, self.answers, self.fingerprints
        known = len(answers)
        users: list[UserText] = []
        for index, item in enumerate(self.items[first:], first):
            role = item.role
            if role is _ASSISTANT:
                calls = item.calls
                answer, found = prints.message(calls) if calls else (prints.text("text", text_of(item.content).strip()), ())
                starts.append(index)
                made.append(calls)
                answers.append(answer)
                fingerprints.append(found)
            elif role is _USER:
                follows = len(made) > 0 and (not made[-1] or self.items[index - 1].kind == HOSTED)
                users.append(UserText(index, len(made), follows, user_mark(item, prints) if follows else 0))
        self.users += tuple(users)
        self.line.update(packed(*answers[known:]))
        self._count(fingerprints[known:])

    def same(self, seed: int, prints: Fingerprints) -> int:
        """All answers, the newest results and whatever follows the last answer: system text is left out, since clocks stand in it."""
        newest, end = self._newest, self._starts[-1] + 1 if self._starts else 0
        for index, item in enumerate(self.items[end:], end):
            if item.role is not _SYSTEM:
                newest[index] = prints.raw_result(item.content or _EMPTY)
        return ended(self.line, len(self.answers), seed, *newest.values())

    def _count(self, fingerprints: list[tuple[int, ...]]) -> None:
        times = self.times
        for call in chain.from_iterable(fingerprints):
            made = times.get(call, 0)
            times[call] = made + 1
            if made:
                self.again += 1

    def _uncount(self, fingerprints: list[tuple[int, ...]]) -> None:
        for call in chain.from_iterable(fingerprints):
            self.times[call] -= 1
            if self.times[call]:
                self.again -= 1
            else:
                del self.times[call]

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, index: int) -> Message: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Message]: ...

    def __getitem__(self, index: int | slice) -> Message | Sequence[Message]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        at = index if index >= 0 else index + len(self._starts)
        message = self._read.get(at)
        if message is None:
            if not 0 <= at < len(self._starts):
                raise IndexError(f"message {index} of {len(self._starts)}")
            message = self._read[at] = self._look(at)
        return message

    def _look(self, at: int) -> Message:
        """A message with the results that follow it."""
        items, starts, made, fingerprints, exact = self.items, self._starts, self.made[at], self.fingerprints[at], self._newest
        start, end = starts[at], starts[at + 1] if at + 1 < len(starts) else len(items)
        last = end - 1
        while last > start and (items[last].role is not _TOOL or items[last].kind == HOSTED):
            last -= 1
        if last <= start:
            last = self.earlier[at].result if at < len(self.earlier) else -1
        if len(made) != 1:
            calls = tuple([SeenCall(fingerprint, call.name, call.id) for fingerprint, call in zip(fingerprints, made, strict=True)])
            _match_results(calls, items, start + 1, end, exact)
            return Message(self.answers[at], calls, start, last)
        fingerprint, name, id = fingerprints[0], made[0].name, made[0].id  # nearly always
        for index in range(start + 1, end):
            item = items[index]
            if item.role is _TOOL and (item.call_id == id or item.call_id is None or id is None):
                seen = SeenCall(fingerprint, name, id, item.content or _EMPTY, index, item.failed, exact.get(index, UNSEEN))
                break
        else:
            seen = SeenCall(fingerprint, name, id)
        return Message(self.answers[at], (seen,), start, last)


def _remembered_calls(message: Earlier, items: Sequence[Item], prints: Fingerprints) -> tuple[ToolCall, ...]:
    """The calls of a message that is remembered, under the ids by which the request's results know them."""
    given = {id_mark(item.call_id, prints): item.call_id for item in items if item.call_id} if message.ids else {}
    ids: list[str | None] = [given.get(mark, "") for mark in message.ids] or [None] * len(message.calls)
    return tuple([ToolCall(id, name, "") for id, name in zip(ids, message.names, strict=True)])


def id_mark(call_id: str | None, prints: Fingerprints) -> int:
    """What is remembered of a call's id."""
    return prints.text("call id", call_id or "")


class History(msgspec.Struct, frozen=True):
    """A request's history. seed: identity of the first user text. same: identity of the whole, equal for a request sent again.

    users: those in the request. prints: under which identities. tokens: what the past at the upstream costs to read, at most.
    """

    messages: Messages
    users: tuple[UserText, ...]
    seed: int
    same: int
    prints: Fingerprints
    tokens: int = 0

    @property
    def remembered(self) -> int:
        """How many of the messages only the upstream has."""
        return len(self.messages.earlier)


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One call in a trail.

    result: its identity, `UNSEEN` while unknown. flags: what `outcomes` read of the result. error: the identity of what a failed result
    complains of, 0 for others. arguments: as they were written, None where the history no longer shows them.
    """

    call: int
    name: str
    result: int = UNSEEN
    flags: int = 0
    error: int = 0
    arguments: str | None = None

    @property
    def failed(self) -> bool:
        return self.flags & FAILED != 0

    @property
    def void(self) -> bool:
        """Whether the result is Lastcall's own: no news, whatever it says."""
        return self.flags & VOID != 0


class Step(msgspec.Struct, frozen=True, gc=False):
    """The calls of one assistant message. after_compaction: the history before it was summarised away."""

    calls: tuple[Entry, ...]
    after_compaction: bool = False


class Trail(msgspec.Struct, frozen=True, gc=False):
    """The calls of a lane's current run (or of the session), oldest first.

    nudged: calls inside a loop that was nudged in this run, with the number of steps there were then. relapsed: calls that stopped an
    earlier run, with the result they had.
    made: how often each call was made in the session as delivered, for counting over a whole session. latest: what was delivered last.
    offer: the tools of the request. excused: calls whose next occurrence an operator allowed. once: it is known that no call is in it twice
    and that nothing was summarised away.
    """

    steps: tuple[Step, ...] = ()
    nudged: dict[int, int] = {}
    relapsed: dict[int, int] = {}
    made: dict[int, int] = {}
    latest: tuple[Entry, ...] = ()
    offer: Offer = msgspec.field(default_factory=Offer)
    excused: frozenset[int] = frozenset()
    once: bool = False

    @property
    def newest(self) -> tuple[Entry, ...]:
        """The calls of the newest message; of the answer delivered last, where the history holds no message.

        What was summarised away counts until the next message comes: a loop is not left by forgetting it.
        """
        steps = self.steps
        if steps and (newest := steps[-1].calls):  # nearly always
            return newest
        for step in reversed(steps):
            if step.calls or not step.after_compaction:
                return step.calls
        return self.latest


def read(request: Request, prints: Fingerprints, past: Past | None = None) -> History:
    """The history of a request. Results are matched to the calls of the assistant message before them: ids are not unique across turns.

    past: what the upstream keeps of it.
    """
    if past is not None:
        items = (_GONE,) * past.since + request.items[past.since :]
        messages = Messages(items, prints, past.messages)
        return History(messages, messages.users, past.seed, messages.same(past.seed, prints), prints, past.tokens)
    before = request.groundwork.before
    base = before if isinstance(before, History) and before.prints is prints else None
    messages = Messages(request.items, prints, before=None if base is None else base.messages)
    users = messages.users
    if base is not None and users and base.users and users[0] is base.users[0]:
        seed = base.seed
    else:
        seed = prints.text("seed", text_of(request.items[users[0].item].content).strip()) if users else 0
    history = History(messages, users, seed, messages.same(seed, prints), prints)
    request.groundwork.own, request.groundwork.before = history, None
    return history


def user_mark(item: Item, prints: Fingerprints) -> int:
    """The identity of what a user item says."""
    return prints.text("user", text_of(item.content).strip())


def _match_results(calls: Sequence[SeenCall], items: Sequence[Item], start: int, end: int, exact: Mapping[int, int]) -> None:
    """Gives each result to the first call with its id that has none yet; where one side has no id, to the first such call that waits."""
    by_id: dict[str | None, deque[SeenCall]] = {}
    for call in calls:
        by_id.setdefault(call.id, deque()).append(call)
    in_order = deque(calls)
    for index, item in enumerate(items[start:end], start):
        if item.role is _TOOL:
            waiting = in_order if item.call_id is None else by_id.get(item.call_id, by_id.get(None, deque()))
            while waiting and waiting[0].item >= 0:
                waiting.popleft()
            if waiting:
                call = waiting.popleft()
                call.content, call.item, call.failed, call.exact = item.content or _EMPTY, index, item.failed, exact.get(index, UNSEEN)


def answer_identity(text: str, calls: tuple[ToolCall, ...], prints: Fingerprints) -> int:
    """The identity of an assistant message: ids and fingerprints of its calls, or its text when it made none."""
    return prints.message(calls)[0] if calls else prints.text("text", text.strip())


def head_of(request: Request, prints: Fingerprints) -> int:
    """The identity of what frames a conversation: its system text (without clock times and the like) and its tools."""
    system = [prints.result(item.content).to_bytes(8, "little") for item in request.items if item.role is _SYSTEM]
    return prints.digest(b"head", request.tools_raw, *system)


_GO_ON = re.compile(
    r"(?:please\s+|ok(?:ay)?[,.]?\s+|yes[,.]?\s+)?(?:continue|go\s+on|go\s+ahead|proceed|keep\s+going|carry\s+on|resume)(?:\s+please)?\s*[.!…]*",
    re.IGNORECASE,
)
# What clients write into the user role by themselves; docs/detection.md lists who sends which.
_AUTOMATIC = re.compile(
    r"""
      \[your\ previous\ response\ had\ no\ visible\ output
    | output\ token\ limit\ hit
    | please\ continue\ from\ where\ you\ left\ off
    | please\ continue\ working\ on\ the\ task\ on\ whatever\ approach
    | continue\ (?:the\ conversation\ )?from\ where\ (?:you|we|it)\ left\ off
    | this\ session\ is\ being\ continued\ from\ a\ previous\ conversation
    | \[error\]\ you\ did\ not\ use\ a\ tool
    | you\ did\ not\ (?:call|use)\ (?:a|any)\ tool
    | please\ always\ provide\ exactly\ one\ action
    | format\ error
    | \[?tool\ use\ (?:was\ )?interrupted
    | \[request\ interrupted\ by\ user
    | (?:the\ )?previous\ session\ was\ interrupted
    | \[lastcall
    """,
    re.VERBOSE | re.IGNORECASE,
)
_WRAPPED = re.compile(r"<(system-reminder|environment_details|environment_context|system_information)>(?:(?!<\1>).)*?</\1>", re.DOTALL)


def from_person(text: str) -> bool:
    """Whether user text may be a person's own: not empty, not a bare "continue", none of the messages clients write by themselves."""
    bare = _WRAPPED.sub("", text).strip()
    return bool(bare) and _GO_ON.fullmatch(bare) is None and _AUTOMATIC.match(bare) is None


_ASKS_SUMMARY = re.compile(
    r"(?:summari[sz]e|summary|compact(?:ed|ion)?\b|hand-?off)[^\n]{0,400}?\b(?:conversation|session|history|context|so far|progress|work)\b"
    r"|\b(?:conversation|session|history|context)\b[^\n]{0,400}?(?:summari[sz]e|summary|compaction)",
    re.IGNORECASE,
)


def asks_summary(request: Request) -> bool:
    """Whether the request wants its history summarised: its last item is user text that says so."""
    items = request.items
    if not items or items[-1].role is not _USER:
        return False
    text = text_of(items[-1].content)
    return _ASKS_SUMMARY.search(text[:4096]) is not None or _ASKS_SUMMARY.search(text[-4096:]) is not None


_ASKS_TITLE = re.compile(
    r"\b(?:generate|create|write|produce|give|suggest|come up with|output)\b[^\n]{0,80}?\b(?:title|headline)\b"
    r"|\btitle (?:generator|for (?:this|the|a) (?:conversation|chat|session|thread|task))\b",
    re.IGNORECASE,
)


def is_side(request: Request) -> bool:
    """Whether a request is about the conversation rather than a turn of it: its summary or, without tools, its title."""
    if asks_summary(request):
        return True
    if request.tools:
        return False
    said = [item for item in request.items if item.role is _SYSTEM or item.role is _USER]
    return any(_ASKS_TITLE.search(text_of(item.content)[:4096]) is not None for item in said[:2] + said[-1:])


_STUB = re.compile(r"\b(?:cleared|pruned|omitted|elided|truncated|trimmed|compacted|removed)\b", re.IGNORECASE)


def is_stub(content: bytes) -> bool:
    """Whether a result is what clients leave in the place of an old one that they cut: a short bracketed remark."""
    if len(content) >= 320 or not content.startswith((b'"', b"[")):
        return False
    text = text_of(content)
    return len(text) < 240 and text.startswith(("[", "<", "(")) and _STUB.search(text) is not None


def is_void(content: bytes) -> bool:
    """Whether a result was written by Lastcall in the place of a call that was not carried out."""
    at = content.find(b"[")  # which many results hold none of; to look for a single byte costs a tenth
    return at >= 0 and content.find(_STOP_MARK, at) >= 0  # `in` takes bytes for a number first, and the error for being wrong costs more
