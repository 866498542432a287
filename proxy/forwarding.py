"""A streamed answer on its way from the upstream to the client.

Forwarded event by event as it arrives, followed by the dialect's reader beside that, never before it. Three cases look first: an armed
stream holds everything from its first tool call on until it is whole, any stream holds a message that repeats a tool so often that the
next call may have to be cut, and where no tool can be called the newest text waits while it may still become tool markup.
"""

from collections.abc import Awaitable, Callable

from proxy.dialects import Dialect
from proxy.dialects.sse import Splitter
from proxy.engine import runaway
from proxy.models import Answer
from proxy.policy import Policy
from proxy.watch import Watch


class Forwarder:
    """One stream. write: sends bytes to the client. ending: told the answer before its last event goes out. objects: whether the calls so
    far must be cut. mute: nothing may go out before the decision. watch: follows the text.

    held: events not let go; holding: from some event on nothing was. spoke: events with data went out; called: calls among them, before
    holding began; sent: how far the stream had come then, in the reader's own words. said: the text that went out. cut: the
    upstream need not go on.
    """

    def __init__(
        self,
        dialect: Dialect,
        policy: Policy,
        *,
        armed: bool,
        strip_usage: bool,
        mute: bool,
        watch: Watch | None = None,
        write: Callable[[bytes], Awaitable[None]],
        ending: Callable[[Answer], None],
        objects: Callable[[Answer], bool],
    ) -> None:
        self.reader = dialect.reader()
        self.held: list[bytes] = []
        self.holding = mute
        self.spoke = False
        self.called = False
        self._sent: object = None
        self.cut = False
        self._watch = watch
        self._first = watch is not None and watch.first
        self._waiting: list[bytes] = []
        self._said: list[str] = []
        self._unsaid: list[str] = []
        self._dialect = dialect
        self._policy = policy
        self._armed = armed
        self._strip = strip_usage
        self._write = write
        self._ending = ending
        self._objects = objects
        self._splitter = Splitter()
        self._due = 0  # calls begun at the next look

    @property
    def sent(self) -> object:
        """How far the stream has come for the client, in the reader's own words."""
        return self._sent if self.holding or self._waiting else self.reader.sent(withheld=False)

    @property
    def withholds(self) -> bool:
        """Whether something came that the client does not have."""
        return self.holding or bool(self._waiting)

    @property
    def said(self) -> str:
        return "".join(self._said)

    async def take(self, chunk: bytes) -> None:
        """Passes on what a chunk completes."""
        events = self._splitter.feed(chunk)
        if not events:
            return
        came = events[0] if len(events) == 1 else b"".join(events)
        ends = came.find(self._dialect.terminator) >= 0
        if self._looks(came, ends=ends):
            for event in events:
                await self._look_first(event)
                if self.cut:
                    return
            return
        if self._strip:
            came = b"".join([self._dialect.without_usage(event) for event in events])
        if ends:
            self._follow(events)
            self._announce_end()
        await self._let_go(came)
        if not ends:
            self._follow(events)

    def _looks(self, came: bytes, *, ends: bool) -> bool:
        """Whether these events must be looked at before they go out."""
        if self._first or self._armed or self.holding or (ends and self._watch is not None):
            return True
        coming = came.count(b'"name"')
        return bool(coming or self.reader.begun) and runaway(self._policy, self.reader.begun, coming=coming)

    async def finish(self) -> None:
        """Passes on what the stream ended with, be it a broken event."""
        rest = self._splitter.rest()
        if rest and not self.cut:
            await self._look_first(rest)
        if self._waiting and self._watch is not None:
            self._watch.finish()
            if self._watch.spoiled:
                self.holding, self.held, self._waiting = True, self._waiting, []
            else:
                await self._release(b"")

    async def _let_go(self, out: bytes) -> None:
        if out:
            self.spoke = self.spoke or out.find(b"data:") >= 0
            await self._write(out)

    def _announce_end(self) -> None:
        """The answer must be on its way to the store before the client can act on it."""
        if (answer := self.reader.answer()).complete:
            self._ending(answer)

    def _follow(self, events: list[bytes]) -> None:
        reader = self.reader
        for event in events:
            reader.feed(event)
            if reader.said:
                self._said.append(reader.said)
                self._listen()

    def _listen(self) -> None:
        """Follows the text that the event just read added; one that has no end is cut after it."""
        if self._watch is None or self.reader.begun or not self.reader.said:
            return
        self._watch.take(self.reader.said)
        self.cut = self.cut or self._watch.endless

    async def _look_first(self, event: bytes) -> None:
        begun = self.reader.begun
        called = bool(begun)
        self.reader.feed(event)
        self._listen()
        if self._watch is not None and self.reader.holds_call:  # the end: no more text can decide
            if self._waiting:
                self._watch.finish()
            if self._watch.first and not self.reader.begun and not self.holding:
                self._look_into_thought(self._watch)
        if not self.holding and self._must_hold(begun):
            self.holding, self.called = True, called
            self._sent = self._sent if self._waiting else self.reader.sent()
            self.held, self._waiting = self._waiting, []
        out = self._dialect.without_usage(event) if self._strip else event
        if self.holding:
            self._hold(out, begun)
        elif self._watch is not None and self._watch.waiting:
            self._sent = self._sent if self._waiting else self.reader.sent()
            self._waiting.append(out)
            self._unsaid.append(self.reader.said)
        else:
            await self._release(out)

    def _look_into_thought(self, watch: Watch) -> None:
        """An answer that ends without a word may have its call in its reasoning, which went out; its end must not."""
        choices = self.reader.answer().choices
        if choices and choices[0].thought and not choices[0].text.strip():
            watch.end_in_thought(choices[0].thought)

    def _must_hold(self, begun: dict[str, int]) -> bool:
        if self._watch is not None and self._watch.spoiled:
            return True
        return (self._armed and self.reader.holds_call) or runaway(self._policy, begun)

    async def _release(self, out: bytes) -> None:
        """Lets an event go, and those that waited before it."""
        if self._dialect.terminator in out:
            self._announce_end()
        self._said += [*self._unsaid, self.reader.said if out else ""]
        out, self._waiting, self._unsaid = b"".join([*self._waiting, out]), [], []
        await self._let_go(out)

    def _hold(self, out: bytes, begun: dict[str, int]) -> None:
        self.held.append(out)
        total = sum(begun.values())
        if total >= self._due and runaway(self._policy, begun):
            self.cut = self._objects(self.reader.answer())
            self._due = total + max(1, total // 8)  # each look is at all calls so far: further and further apart
