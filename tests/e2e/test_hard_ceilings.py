"""Many requests at once against one session and one team: streams, hang-ups, errors, a killed worker, a store that starts again.

The upstream keeps its own books. What was settled never passes the limit, is what the books say to the token, and nothing stays held.
"""

import asyncio
import contextlib
import json
import os
import signal
import uuid
from collections.abc import AsyncIterator, Iterator
from itertools import cycle, islice

import aiohttp
import pytest
import redis

from proxy.identity import Keys
from proxy.keys import digest_of
from proxy.store import Account, Peeked, Store, open_store
from tests.running import Process, process, running
from tests.servers import Server, redis_server
from tests.upstreams import DONE, STREAM, WHOLE, Asked, Reply, Upstream, chunks, completion

INPUT, OUTPUT = 100, 10  # what the scripted model reports for each answer
KEY = "operators-key"
LIMITS = {10: 800, 100: 6_000, 500: 20_000}  # by the number of requests at once: a fraction of what these ask for
KINDS = ("whole", "streamed", "embedded", "failing", "left")


class Books:
    """The upstream's own: what it charged, by request. It obeys the output limit that it is sent."""

    def __init__(self) -> None:
        self.calls = 0
        self.tokens = 0
        self.gate = asyncio.Event()  # nothing is charged before it opens
        self.gate.set()

    def charge(self, output: int) -> dict[str, int]:
        self.calls += 1
        self.tokens += INPUT + output
        return {"prompt_tokens": INPUT, "completion_tokens": output, "total_tokens": INPUT + output}

    def __call__(self, asked: Asked) -> Reply:
        body = asked.json
        if not self.gate.is_set():
            return Reply(self._later(asked), headers=STREAM if body.get("stream") else WHOLE)
        if asked.target.endswith("/embeddings"):
            return Reply(json.dumps({"data": [], "usage": self.charge(0)}).encode())
        said = body["messages"][-1]["content"]
        if "failing" in said:
            return Reply(b'{"error": {"message": "overloaded"}}', 500)
        usage = self.charge(min(body["max_tokens"], OUTPUT))
        if not body.get("stream"):
            return Reply(json.dumps(json.loads(completion(DONE)) | {"usage": usage}).encode())
        return Reply(self._streamed(asked, usage, stuck="left" in said), headers=STREAM)

    async def _later(self, asked: Asked) -> AsyncIterator[bytes]:
        await self.gate.wait()
        reply = self(asked)
        if isinstance(reply.body, bytes):
            yield reply.body
            return
        async for piece in reply.body:
            yield piece

    async def _streamed(self, asked: Asked, usage: dict[str, int], *, stuck: bool) -> AsyncIterator[bytes]:
        *events, last = [event for event in chunks(DONE, asked) if b'"usage"' not in event]
        told = b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n"
        yield told  # at the start too, as some servers do, so that whoever is cut off knows it
        for event in events:
            await asyncio.sleep(0)
            yield event
        if stuck:
            await asyncio.Event().wait()
        yield told + last


def config(limits: dict[int, int], **more: object) -> str:
    """A team for each number, of that name and with that key."""
    teams = {
        f"t{count}": {"keys": [digest_of(f"k{count}")], "budgets": [{"tokens": most, "per": "month"}]} for count, most in limits.items()
    }
    return json.dumps({"teams": teams} | more)


class Crowd:
    """Requests of one team, of a session or of a session each. tally: how many ended how."""

    def __init__(self, http: aiohttp.ClientSession, url: str, team: int, *, session: str | None = None) -> None:
        self._http = http
        self._url = url
        self._team = team
        self._session = session
        self.tally = {"ok": 0, "refused": 0, "failed": 0, "left": 0}

    async def ask(self, kind: str, text: str = "", **headers: str) -> None:
        session = self._session or f"s-{uuid.uuid4()}"
        sent = {"x-lastcall-key": f"k{self._team}", "x-lastcall-session": session} | headers
        body: dict[str, object] = {"model": "m", "max_tokens": 50}
        path = "/embeddings" if kind == "embedded" else "/chat/completions"
        if kind == "embedded":
            body["input"] = text
        else:
            body |= {"messages": [{"role": "user", "content": f"{kind} {text}"}], "stream": kind in ("streamed", "left")}
        try:
            async with self._http.post(self._url + path, json=body, headers=sent) as response:
                if kind == "left" and response.headers.get("x-lastcall-action") == "allow":
                    await response.content.readuntil(b"one")
                    response.close()
                    self.tally["left"] += 1
                    return
                said = await response.read()
                self.tally["refused" if b"_budget" in said else "ok" if response.status == 200 else "failed"] += 1
        except aiohttp.ClientError:
            self.tally["failed"] += 1

    async def rush(self, count: int, kinds: tuple[str, ...] = KINDS) -> None:
        await asyncio.gather(*(self.ask(kind, str(number)) for number, kind in enumerate(islice(cycle(kinds), count))))

    async def exhaust(self, books: Books) -> None:
        """One after another, until nothing fits any more."""
        calls = -1
        while calls != books.calls:
            calls = books.calls
            await self.ask("whole")


class Ledgers:
    """A look into a shared store from outside."""

    def __init__(self, store: Store, keys: Keys) -> None:
        self._store = store
        self._keys = keys

    async def _peek(self, account: Account) -> Peeked:
        (found,) = await self._store.peek([account])
        assert found is not None
        return found

    async def team(self, count: int) -> Peeked:
        return await self._peek(Account(self._keys.ledger(f"t{count}"), team=True))

    async def session(self, count: int, name: str) -> Peeked:
        return await self._peek(Account(self._keys.named(f"k{count}", name, f"t{count}")[1]))

    async def settled(self, count: int, tokens: int) -> Peeked:
        """The team's, once so much is settled and no call is under way."""
        async with asyncio.timeout(20):
            while (found := await self.team(count)).calls or found.ledger.tokens < tokens:  # noqa: ASYNC110 - the store tells nobody
                await asyncio.sleep(0.05)
        return found

    async def covering(self, count: int, books: Books) -> tuple[Peeked, int]:
        """The team's, once what is settled and held covers what was charged; and that: settlements may still be on their way."""
        async with asyncio.timeout(30):
            while True:
                found, charged = await self.team(count), books.tokens
                if charged <= found.ledger.tokens + found.ledger.reserved_tokens:
                    return found, charged
                await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def looking(url: str) -> AsyncIterator[Ledgers]:
    store = open_store(url, clock=lambda: 0.0, random_bytes=os.urandom, timeout=5)
    try:
        yield Ledgers(store, Keys(await store.secret()))
    finally:
        await store.close()


@pytest.fixture
def books(upstream: Upstream) -> Books:
    kept = Books()
    upstream.model = kept
    return kept


@pytest.fixture
async def crowded() -> AsyncIterator[aiohttp.ClientSession]:
    """Connections without a limit."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=60)) as session:
        yield session


@pytest.fixture
def server() -> Iterator[Server]:
    """A Redis that loses no write."""
    with redis_server() as running_server:
        yield running_server


async def shown(http: aiohttp.ClientSession, url: str, team: int) -> tuple[int, int, int]:
    """What operators are shown of a team: tokens settled and held, calls under way."""
    async with http.get(f"{url}/admin/teams/t{team}", headers={"authorization": f"Bearer {KEY}"}) as response:
        told = await response.json()
    (limit,) = told["limits"]
    return limit["spent"], limit["reserved"], told["calls_under_way"]


FOUR = ("--workers", "4", "--store")
CLOSED = {"store": {"timeout": "5s", "failure_mode": "closed"}}


@pytest.mark.parametrize("session", ["one", None], ids=["one session", "a session each"])
@pytest.mark.parametrize("count", LIMITS)
async def test_a_ceiling_holds_in_one_process(
    upstream: Upstream, crowded: aiohttp.ClientSession, books: Books, count: int, session: str | None
) -> None:
    """Whatever comes at once; and once all is over the rest of the budget is there, to less than the worst case of one call.

    What was settled is what the upstream charged, to the token, and nothing stays held.
    """
    async with running(upstream.url, config(LIMITS, server={"admin_key": digest_of(KEY)})) as proxy:
        crowd = Crowd(crowded, proxy.v1, count, session=session)
        await crowd.rush(count)
        at_once = books.tokens
        await upstream.until(lambda: len(upstream.broken_off) == crowd.tally["left"])
        async with asyncio.timeout(20):
            while books.tokens <= LIMITS[count] - 600:  # what was made for clients that left is settled a little after them
                await Crowd(crowded, proxy.v1, count, session=session).exhaust(books)
                await asyncio.sleep(0.05)
            while (told := await shown(crowded, proxy.url, count)) != (books.tokens, 0, 0):
                assert told[0] <= LIMITS[count]
                await asyncio.sleep(0.05)

    assert sum(crowd.tally.values()) == count
    assert crowd.tally["refused"] > 0 < crowd.tally["ok"]
    assert LIMITS[count] - 600 < at_once <= books.tokens <= LIMITS[count]  # whoever waited for room had it


async def test_a_ceiling_holds_across_workers(upstream: Upstream, crowded: aiohttp.ClientSession, books: Books, server: Server) -> None:
    """Four on one Redis: what they settled is what the upstream charged, to the token, and nothing stays held."""
    with process(upstream.url, *FOUR, server.url, config=config(LIMITS, **CLOSED)) as served:
        async with looking(server.url) as ledgers:
            for count, limit in LIMITS.items():
                before = books.tokens
                for session in ("one", None):
                    await Crowd(crowded, served.v1, count, session=session).rush(count)
                charged = books.tokens - before
                found = await ledgers.settled(count, charged)

                assert 0 < charged == found.ledger.tokens <= limit
                assert (found.ledger.reserved_tokens, found.ledger.reserved_steps) == (0, 0)
                if session is not None:  # it pays on every route
                    assert (await ledgers.session(count, session)).ledger.tokens == charged


async def test_a_sessions_ceiling_holds_on_every_route(
    upstream: Upstream, crowded: aiohttp.ClientSession, books: Books, either_store: str
) -> None:
    """Judged or not, streamed, failing and left, all at once: there is no way around it."""
    limit = 1_500
    async with running(upstream.url, json.dumps({"policy": {"budgets": {"tokens": limit}}}), store=either_store) as proxy:
        crowd = Crowd(crowded, proxy.v1, 100, session=uuid.uuid4().hex)
        await crowd.rush(100)
        await upstream.until(lambda: len(upstream.broken_off) == crowd.tally["left"])
        await crowd.exhaust(books)
        for _ in range(3):
            await crowd.ask("embedded", "x" * 500)

    embedded = [asked for asked in upstream.asked if asked.target.endswith("/embeddings")]
    assert sum(crowd.tally.values()) > 100
    assert 0 < len(embedded) < 20
    assert limit - 700 < books.tokens <= limit


@pytest.mark.parametrize(("count", "session"), [(10, None), (100, "one"), (100, None), (500, None)])
async def test_a_killed_replica_and_a_store_that_starts_again(
    upstream: Upstream, crowded: aiohttp.ClientSession, books: Books, server: Server, count: int, session: str | None
) -> None:
    """No settlement is lost or counted twice. What the dead one's calls held is void within a minute."""
    rules = config({100: 1_000_000}, **CLOSED)
    lost = count // 5
    served_well = count - lost
    with (
        process(upstream.url, *FOUR, server.url, config=rules) as served,
        process(upstream.url, "--store", server.url, config=rules) as dying,
    ):
        async with looking(server.url) as ledgers:
            books.gate.clear()
            alive, dead = (Crowd(crowded, proxy.v1, 100, session=session) for proxy in (served, dying))
            under_way = asyncio.gather(alive.rush(served_well, ("whole", "streamed")), dead.rush(lost, ("whole", "streamed")))
            await upstream.until(lambda: len(upstream.asked) == count, within=30)
            dying.kill()
            await upstream.until(lambda: len(upstream.broken_off) == lost)
            await asyncio.to_thread(server.restart)
            books.gate.set()
            await under_way

            async with asyncio.timeout(20):
                while (found := await ledgers.team(100)).calls > lost:  # noqa: ASYNC110 - the store tells nobody
                    await asyncio.sleep(0.05)
    with redis.Redis.from_url(server.url) as client:
        expiries = [until for key in client.keys("lastcall:*:leases") for _, until in client.zrange(key, 0, -1, withscores=True)]
        seconds, _ = client.time()

    assert (alive.tally["ok"], dead.tally["failed"], books.calls) == (served_well, lost, served_well)
    assert (found.ledger.tokens, found.calls) == (books.tokens, lost)
    assert len(expiries) == 2 * lost  # each in its session's ledger and in the team's
    assert all(until <= seconds + 61 for until in expiries)


async def through_faults(rush: "asyncio.Task[None]", count: int, upstream: Upstream, served: Process, server: Server) -> None:
    """A worker is killed when a tenth of the crowd has been asked, the store starts again when a fifth has; or when no more are."""
    asked = len(upstream.asked)

    async def until_asked(share: int) -> None:
        reached = asyncio.create_task(upstream.until(lambda: len(upstream.asked) > asked + count // share, within=60))
        await asyncio.wait({rush, reached}, return_when=asyncio.FIRST_COMPLETED)  # an end of the rush changes nothing at the upstream
        reached.cancel()

    await until_asked(10)
    os.kill(served.workers()[0], signal.SIGKILL)
    await until_asked(5)
    await asyncio.to_thread(server.restart)
    await rush


@pytest.mark.parametrize(("count", "session"), [(10, "one"), (100, None), (500, "one")])
async def test_a_ceiling_holds_while_a_worker_dies_and_the_store_starts_again(
    upstream: Upstream, crowded: aiohttp.ClientSession, books: Books, server: Server, count: int, session: str | None
) -> None:
    """In the midst of a crowd near a limit. What the dead one's calls cost and nobody settled is no more than what they still hold."""
    with process(upstream.url, *FOUR, server.url, config=config(LIMITS, **CLOSED)) as served:
        async with looking(server.url) as ledgers:
            crowd = Crowd(crowded, served.v1, count, session=session)
            await through_faults(asyncio.create_task(crowd.rush(count)), count, upstream, served, server)
            found, charged = await ledgers.covering(count, books)

    assert sum(crowd.tally.values()) == count
    assert found.ledger.tokens <= charged <= LIMITS[count]  # nothing may be settled: the dead one may have had the whole crowd
    assert charged > 0
    assert found.calls <= crowd.tally["failed"] + crowd.tally["left"]


async def test_a_body_sent_sixty_times_is_charged_sixty_times(
    upstream: Upstream, crowded: aiohttp.ClientSession, books: Books, redis_url: str
) -> None:
    """Marked as retries, cut off or overlapping: each pays its tokens, and none is a repeat of the agent's."""
    name = uuid.uuid4().hex
    async with running(upstream.url, config({60: 1_000_000}), store=redis_url) as one, looking(redis_url) as ledgers:
        crowd = Crowd(crowded, one.v1, 60, session=name)
        for number in range(20):
            await crowd.ask("whole", "same", **{"x-stainless-retry-count": str(number)})
        for _ in range(20):
            await crowd.ask("left", "same")
        await asyncio.gather(*(crowd.ask("streamed", "same") for _ in range(20)))
        found = await ledgers.settled(60, books.tokens)
        session = await ledgers.session(60, name)

    assert crowd.tally == {"ok": 40, "refused": 0, "failed": 0, "left": 20}
    assert (books.calls, found.ledger.tokens, session.ledger.tokens) == (60, books.tokens, books.tokens)
    assert all(line["action"] == "allow" and "reason" not in line for line in one.exchanges())


async def test_n_steps_are_n_calls_whichever_replica_serves(
    upstream: Upstream, crowded: aiohttp.ClientSession, books: Books, redis_url: str
) -> None:
    """One after another and all at once."""
    name = uuid.uuid4().hex
    rules = config({7: 1_000_000}, policy={"budgets": {"steps": 7}})
    async with running(upstream.url, rules, store=redis_url) as one, running(upstream.url, rules, store=redis_url) as other:
        crowds = [Crowd(crowded, proxy.v1, 7, session=name) for proxy in (one, other)]
        for crowd in crowds:
            await crowd.ask("whole", "first")
        await asyncio.gather(*(crowd.ask("whole", str(number)) for crowd in crowds for number in range(20)))
        for crowd in crowds:
            await crowd.ask("whole", "last")

    assert books.calls == len(upstream.asked) == 7
