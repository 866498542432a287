"""Sessions on a store in memory that can be away, slow or contended, its clock and ids in the test's hand."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from proxy.dialects import DIALECTS
from proxy.engine import Result
from proxy.events import NudgeEnded, StoreChanged, StoreFailed
from proxy.identity import Identity, Tighten
from proxy.models import Choice, ToolCall
from proxy.policy import Policy
from proxy.sessions import Session, Sessions
from proxy.store import Committed, GuardedStore, Listing, Opened, Reservation, Settlement
from proxy.store.memory import MemoryStore
from tests.in_process import Clock, ids, request

CHAT = DIALECTS["/chat/completions"]
ENOUGH = Policy()
LONG = "The configuration of the exporter lives in three files below the folder etc"
FIRST: list[dict[str, Any]] = [{"role": "user", "content": "list it"}]
LS = ToolCall("c0", "ls", "{}")


class Faulty(MemoryStore):
    """A store that can be away, slow to commit, or always contended."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock, lambda size: b"\x07" * size)
        self.down = False
        self.contended = False
        self.distant = False  # a round trip takes a turn of the loop
        self.gate: asyncio.Event | None = None
        self.finds: list[Sequence[bytes]] = []
        self.commits: list[tuple[bytes | None, Sequence[Settlement], Sequence[bytes]]] = []

    def _check(self) -> None:
        if self.down:
            raise OSError("away")

    async def secret(self) -> bytes:
        self._check()
        return await super().secret()

    async def find(self, links: Sequence[bytes]) -> bytes | None:
        self._check()
        self.finds.append(links)
        return await super().find(links)

    async def open(self, session: bytes, reservation: Reservation, ttl: float) -> Opened:
        self._check()
        return await super().open(session, reservation, ttl)

    async def commit(
        self,
        session: bytes,
        *,
        record: bytes | None,
        version: int,
        settlements: Sequence[Settlement],
        links: Sequence[bytes],
        ttl: float,
        listing: Listing | None = None,
    ) -> Committed:
        if self.gate is not None:
            await self.gate.wait()
        if self.distant:
            await asyncio.sleep(0)
        self._check()
        self.commits.append((record, settlements, links))
        done = await super().commit(
            session,
            record=None if self.contended else record,
            version=version,
            settlements=settlements,
            links=links,
            ttl=ttl,
            listing=listing,
        )
        return Committed(True, None, 7) if self.contended else done


class World:
    """A process's sessions and the store below them."""

    def __init__(self, *, closed: bool = False, patience: float = 0.25) -> None:
        self.clock = Clock()
        self.store = Faulty(self.clock)
        self.failures: list[StoreFailed] = []
        self.changes: list[StoreChanged] = []
        self._ids = ids()
        self.guard = GuardedStore(
            self.store, timeout=5, clock=self.clock, on_change=self.changes.append, fallback_secret=b"\x09" * 32, retry_after=1.0
        )
        self.sessions = self.process(closed=closed, patience=patience)

    def process(self, *, closed: bool = False, patience: float = 0.25) -> Sessions:
        """Another process on the same store."""
        return Sessions(
            self.guard,
            ttl=3600,
            closed=closed,
            patience=patience,
            new_id=self._ids,
            wall=self.clock,
            on_failure=self.failures.append,
        )

    async def open(
        self,
        messages: Sequence[dict[str, Any]] = FIRST,
        *,
        policy: Policy = ENOUGH,
        sessions: Sessions | None = None,
        name: str | None = None,
        caller: str = "key",
        lane: str | None = None,
        retry: bool = False,
        tighten: Tighten | None = None,
        **members: Any,
    ) -> Session:
        parsed = CHAT.parse(request(messages, **members))
        identity = Identity(caller, name, "header" if name else "derived", lane, retry, tighten or Tighten())
        return await (sessions or self.sessions).open(identity, parsed, policy)

    async def open_kept(self, *items: dict[str, Any], policy: Policy = ENOUGH, name: str | None = None, **members: Any) -> Session:
        """A request whose history the upstream keeps."""
        parsed = DIALECTS["/responses"].parse(json.dumps({"model": "m", "input": list(items), **members}).encode())
        return await self.sessions.open(Identity("key", name, "header" if name else "derived", None, False, Tighten()), parsed, policy)

    async def commit(self, session: Session, *choices: Choice, sessions: Sessions | None = None, **result: Any) -> NudgeEnded | None:
        """Settles one step of 10 + 3 tokens and commits what the client was given."""
        session.settlements.append(Settlement(session.lease, 1, 10, 3, len(session.request.body)))
        ended, task = (sessions or self.sessions).commit(session, self.result(*choices, **result), choices)
        assert await task is not self.store.down
        return ended

    def result(self, *choices: Choice, **members: Any) -> Result:
        settled: dict[str, Any] = {"ended": self.clock.now, "full": True, "calls": choices[0].calls if choices else ()}
        return Result(**(settled | members))

    def entry(self, session: Session) -> Any:
        """What the store holds of a session."""
        return self.store._sessions[session.key]


def says(text: str) -> Choice:
    return Choice(text, (), "stop")


def calls(*made: ToolCall) -> Choice:
    return Choice("", made, "tool_calls")
