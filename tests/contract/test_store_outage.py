"""What servers do to a store: hang, die, restart, lose scripts or data, refuse. On a real Redis 7.0 and a real Valkey 9."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import redis
from redis.crc import key_slot

from proxy.errors import StoreUnavailable
from proxy.events import StoreChanged
from proxy.store import Account, Ceiling, Committed, GuardedStore, Listing, Reservation, Settlement, Store, Unit, open_store, wire
from proxy.store.command import Command
from proxy.store.contract import TEAM_SECONDS
from tests.certificates import self_signed
from tests.servers import Server, free_port, redis_server, valkey_server
from tests.stores import until_up

TTL = 3600.0


@pytest.fixture(params=[redis_server, valkey_server], ids=["redis", "valkey"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with request.param() as started:
        yield started


@pytest.fixture
def admin(server: Server) -> Iterator["redis.Redis"]:
    client = redis.Redis.from_url(server.url, decode_responses=True)
    yield client
    client.close()


@pytest.fixture
async def store(server: Server) -> AsyncIterator[Store]:
    opened = opened_store(server.url)
    yield opened
    await opened.close()


@pytest.fixture
async def guarded(server: Server, changes: list[StoreChanged]) -> AsyncIterator[GuardedStore]:
    """Asks a store that is away every 10 ms, with a deadline far above what a working server needs here."""
    store = GuardedStore(
        opened_store(server.url),
        timeout=1.0,
        clock=time.monotonic,
        on_change=changes.append,
        fallback_secret=b"f" * 32,
        retry_after=0.01,
    )
    yield store
    await store.close()


def opened_store(url: str) -> Store:
    return open_store(url, clock=time.time, random_bytes=os.urandom, timeout=5.0)


def call(lease: str) -> Reservation:
    return Reservation(lease, 1, 4000, 1000, 500, 200, 100, 600.0)


async def write(store: Store, session: bytes, record: bytes, *leases: str) -> Committed:
    settlements = [Settlement(lease, 1, 100, 50, 4000) for lease in leases]
    return await store.commit(session, record=record, version=0, settlements=settlements, links=[b"link-" + session], ttl=TTL)


async def until_connected(admin: "redis.Redis", connections: int, seconds: float = 20.0) -> None:
    """Until the server sees that many connections beside the administrator's."""
    deadline = time.monotonic() + seconds
    while len(admin.client_list(_type="normal")) - 1 != connections:
        assert time.monotonic() < deadline, admin.client_list()
        await asyncio.sleep(0.01)


# Nobody answers


async def test_a_hanging_server_costs_one_deadline(server: Server, guarded: GuardedStore, changes: list[StoreChanged]) -> None:
    """The first call pays it, the next ones fail at once, and the store comes back by itself."""
    await guarded.ping()
    server.pause()
    start = time.monotonic()
    with pytest.raises(StoreUnavailable, match=r"did not answer within 1 s"):
        await guarded.open(b"session", call("a"), TTL)
    paid = time.monotonic() - start
    server.resume()
    await until_up(guarded)

    assert 1.0 <= paid < 5.0
    assert changes == [StoreChanged(up=False, cause="TimeoutError"), StoreChanged(up=True)]


async def test_replies_that_came_too_late_answer_nobody(server: Server, store: Store) -> None:
    """After time-outs and cancellations in every phase of a call, each session still gets its own record."""
    sessions = [bytes([i]) for i in range(24)]
    for session in sessions:
        await write(store, session, b"record-" + session)
    await asyncio.gather(*(store.open(session, call("warm"), TTL) for session in sessions))
    server.pause()
    calls: list[asyncio.Future[object]] = [asyncio.ensure_future(store.open(session, call("late"), TTL)) for session in sessions]
    calls += [asyncio.ensure_future(write(store, session, b"late")) for session in sessions]
    await asyncio.sleep(0.05)
    for waiting in calls:
        waiting.cancel()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    server.resume()

    assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)
    for _ in range(2):
        answers = await asyncio.gather(*(store.open(session, call("next"), TTL) for session in sessions))
        assert [answer.record for answer in answers] == [b"record-" + session for session in sessions]
        assert await asyncio.gather(*(store.find([b"link-" + session]) for session in sessions)) == sessions


async def test_a_dead_server_is_reported_at_once() -> None:
    """A refused connection needs no deadline."""
    store = opened_store(f"redis://user:hunter2@127.0.0.1:{free_port()}")
    with pytest.raises(StoreUnavailable, match="ConnectionError") as failure:
        await store.ping()

    assert "hunter2" not in failure.value.message


# Restarts


async def test_a_restarted_server_is_used_again(server: Server, guarded: GuardedStore, changes: list[StoreChanged]) -> None:
    """What a durable server had stored is there, ledger and all."""
    secret = await guarded.secret()
    await write(guarded, b"session", b"record", "a")
    server.kill()
    with pytest.raises(StoreUnavailable):
        await guarded.ping()
    server.start()
    await until_up(guarded)
    opened = await guarded.open(b"session", call("b"), TTL)

    assert (opened.record, opened.version, opened.ledger.steps) == (b"record", 1, 1)
    assert await guarded.secret() == secret
    assert [change.up for change in changes] == [False, True]


async def test_a_restart_between_two_calls_goes_unnoticed(server: Server, guarded: GuardedStore, changes: list[StoreChanged]) -> None:
    """Connections that died while idle are replaced, not reported."""
    await asyncio.gather(*(guarded.open(bytes([i]), call("a"), TTL) for i in range(8)))
    server.restart()
    answers = await asyncio.gather(*(guarded.open(bytes([i]), call("b"), TTL) for i in range(8)))

    assert [answer.ledger.reserved_steps for answer in answers] == [2] * 8
    assert changes == []


async def test_connections_closed_by_the_server_are_replaced(admin: "redis.Redis", store: Store) -> None:
    """As a server's idle timeout does."""
    await store.ping()
    await until_connected(admin, 1)
    admin.client_kill_filter(_type="normal", skipme=True)
    await until_connected(admin, 0)
    await asyncio.sleep(0.01)
    await store.ping()

    await until_connected(admin, 1)


async def test_settlements_are_delivered_after_an_outage_once(server: Server, guarded: GuardedStore) -> None:
    """Those that never left, and one whose reply was lost."""
    await guarded.open(b"session", call("in doubt"), TTL)
    server.pause()
    with pytest.raises(StoreUnavailable):
        await write(guarded, b"session", b"record", "in doubt")
    with pytest.raises(StoreUnavailable):
        await write(guarded, b"session", b"record", "never sent")
    server.resume()
    await until_up(guarded)
    # Closing delivers what is still owed, so that the ledger can be read without waiting for luck.
    await guarded.close()
    ledger = (await guarded.open(b"session", call("next"), TTL)).ledger

    assert (ledger.steps, ledger.input_tokens, ledger.reserved_steps) == (2, 200, 1)


# Losses


async def test_lost_scripts_are_sent_again(admin: "redis.Redis", store: Store) -> None:
    """SCRIPT FLUSH, or a new server under the same name, costs one more round trip."""
    await write(store, b"session", b"record", "a")
    admin.script_flush()
    opened = await store.open(b"session", call("b"), TTL)
    admin.script_flush()
    committed = await write(store, b"session", b"other", "b")

    assert (opened.record, opened.ledger.steps) == (b"record", 1)
    assert committed == Committed(True, b"record", 1)


async def test_lost_data_begin_anew(admin: "redis.Redis", store: Store) -> None:
    """After FLUSHALL every session is new, and the replicas agree on the secret they had."""
    replica_secret = await store.secret()
    await write(store, b"session", b"record", "a")
    admin.flushall()
    opened = await store.open(b"session", call("b"), TTL)

    assert (opened.record, opened.version, opened.ledger.steps, opened.step) == (None, 0, 0, 1)
    assert await store.find([b"link-session"]) is None
    assert await store.secret() == replica_secret


async def test_evicted_leases_hold_nothing(admin: "redis.Redis", store: Store) -> None:
    """A server short of memory may drop any key: a reservation without a lease is none."""
    await store.open(b"session", call("a"), TTL)
    admin.delete(f"lastcall:{{{b'session'.hex()}}}:leases")
    ledger = (await store.open(b"session", call("b"), TTL)).ledger

    assert (ledger.reserved_steps, ledger.reserved_tokens) == (1, 1500)


# Refusals


async def test_forbidden_scripts_are_reported(admin: "redis.Redis", guarded: GuardedStore, changes: list[StoreChanged]) -> None:
    """A server that does not let us run scripts is a store that is away."""
    admin.acl_setuser("default", enabled=True, nopass=True, keys=["*"], categories=["+@all", "-@scripting"])
    with pytest.raises(StoreUnavailable, match="NoPermissionError"):
        await guarded.open(b"session", call("a"), TTL)

    assert changes == [StoreChanged(up=False, cause="NoPermissionError")]


async def test_a_wrong_password_is_reported(admin: "redis.Redis", server: Server) -> None:
    """By the kind of failure, never with the password."""
    admin.config_set("requirepass", "right")
    store = opened_store(server.url.replace("//", "//:wrong-hunter2@"))
    with pytest.raises(StoreUnavailable, match="AuthenticationError") as failure:
        await store.ping()
    admin.auth("right")

    assert "hunter2" not in failure.value.message


async def test_a_demoted_server_is_left(admin: "redis.Redis", store: Store) -> None:
    """Read-only: no connection to it is kept, so that the next call may reach its successor."""
    await asyncio.gather(*(store.open(bytes([i]), call("a"), TTL) for i in range(4)))
    admin.replicaof("127.0.0.1", str(free_port()))
    with pytest.raises(StoreUnavailable, match="ReadOnlyError"):
        await store.open(b"session", call("a"), TTL)
    await until_connected(admin, 0)
    admin.replicaof("NO", "ONE")

    assert (await store.open(b"session", call("a"), TTL)).step == 1


async def test_a_full_server_refuses_whole_scripts(admin: "redis.Redis", store: Store) -> None:
    """Out of memory, a call changes nothing rather than half of it."""
    await store.open(b"session", call("a"), TTL)
    admin.config_set("maxmemory", "1")
    with pytest.raises(StoreUnavailable, match="OutOfMemoryError"):
        await write(store, b"session", b"record", "a")
    admin.config_set("maxmemory", "0")
    opened = await store.open(b"session", call("b"), TTL)

    assert (opened.record, opened.ledger.steps, opened.ledger.reserved_steps, opened.ledger.reserved_tokens) == (None, 0, 2, 3000)


async def test_a_strange_reply_is_reported(admin: "redis.Redis", store: Store) -> None:
    """Keys that somebody else wrote are a store that cannot be used, not an exception of another kind."""
    admin.set(f"lastcall:{{{b'session'.hex()}}}:ledger", "not a hash")
    admin.set("lastcall:secret", "too short")
    with pytest.raises(StoreUnavailable):
        await store.open(b"session", call("a"), TTL)
    with pytest.raises(StoreUnavailable):
        await store.secret()


# Keys and connections


async def test_keys_expire_and_share_a_slot(admin: "redis.Redis", store: Store) -> None:
    """Every key but the secret expires within the ttl, and those of a session lie in one cluster slot."""
    await store.secret()
    await store.open(b"session", call("a"), TTL)
    await store.open(b"session", call("b"), TTL)
    await write(store, b"session", b"record", "b")
    keys = [str(key) for key in admin.keys("*")]
    mortal = [key for key in keys if key != "lastcall:secret"]
    own = [key for key in mortal if not key.startswith("lastcall:link:")]

    assert len(keys) == 5
    assert all(0 < admin.pttl(key) <= TTL * 1000 for key in mortal)
    assert len({key_slot(key.encode()) for key in own}) == 1


async def test_keys_of_an_account_expire_and_share_a_slot_of_their_own(admin: "redis.Redis", store: Store) -> None:
    """No script touches two slots: each ledger has its own. A team's is kept 400 days after its last use."""
    team = Account(b"team", (Ceiling(Unit.STEPS, 9, "day 1", 4e9),), calls=9, sessions=9, team=True)
    for lease in ("a", "b"):
        await store.open(b"session", Reservation(lease, 1, 4000, 1000, 500, 200, 100, 600.0, accounts=(team,)), TTL)
    settlement = Settlement("b", 1, 1, 1, 1, accounts=(team,), model="gpt-4o", day="2026-11-29")
    await store.commit(b"session", record=b"r", version=0, settlements=[settlement], links=(), ttl=TTL, listing=Listing("t", "l"))
    keys = sorted(str(key) for key in admin.keys("lastcall:{*"))
    slots = {key: key_slot(key.encode()) for key in keys}
    of_team = [key for key in keys if b"team".hex() in key]

    assert [key.rpartition("}:")[2] for key in of_team] == ["leases", "ledger", "members", "settled", "usage:2026-11-29"]
    assert len({slots[key] for key in of_team}) == len({slots[key] for key in keys if key not in of_team}) == 1
    assert all(admin.pttl(key) > 0 for key in keys)
    assert all(abs(admin.pttl(key) / 1000 - TEAM_SECONDS) < 60 for key in of_team if not key.endswith("settled"))


async def test_an_undo_that_never_arrives_holds_no_longer_than_the_lease(
    server: Server, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server dies between a refusal and its undo: the caller hears of it, and what was granted is void in time."""
    rich, poor = Account(b"rich", (Ceiling(Unit.STEPS, 1),), team=True), Account(b"poor", (Ceiling(Unit.STEPS, 0),), team=True)

    undo = wire.undo

    def too_late(key: bytes, lease: str) -> Command:
        server.kill()
        return undo(key, lease)

    def asking(lease: str, *accounts: Account) -> Reservation:
        return Reservation(lease, 1, 4000, 1000, 500, 200, 100, 1.0, accounts=accounts)

    monkeypatch.setattr(wire, "undo", too_late)
    with pytest.raises(StoreUnavailable):
        await store.open(b"session", asking("a", rich, poor), TTL)
    monkeypatch.undo()
    server.start()
    opened = await store.open(b"other", asking("b", rich), TTL)
    deadline = time.monotonic() + 20
    while opened.refused is not None and time.monotonic() < deadline:
        assert opened.refused.kind == "steps"
        await asyncio.sleep(0.02)
        opened = await store.open(b"other", asking("b", rich), TTL)

    assert opened.refused is None


async def test_connections_are_bounded(admin: "redis.Redis", server: Server) -> None:
    """However many ask at once, the URL says how many connections there are."""
    store = opened_store(f"{server.url}?max_connections=3")
    answers = await asyncio.gather(*(store.open(bytes([i]), call("a"), TTL) for i in range(50)))
    await until_connected(admin, 3)
    await store.close()
    await until_connected(admin, 0)

    assert [answer.step for answer in answers] == [1] * 50


async def test_a_connection_may_be_encrypted(tmp_path: Path) -> None:
    """`rediss://` checks the server's certificate against the authority it is told, shows its own, and speaks TLS."""
    certified = self_signed(tmp_path)
    port = free_port()
    with redis_server("--tls-port", str(port), *certified.of_server):
        trusting = opened_store(f"rediss://127.0.0.1:{port}?{certified.trusting}&{certified.showing}")
        opened = await trusting.open(b"session", call("a"), TTL)
        await trusting.close()
        for lacking in (certified.showing, certified.trusting):
            wary = opened_store(f"rediss://127.0.0.1:{port}?{lacking}")
            with pytest.raises(StoreUnavailable):
                await wary.ping()

    assert opened.step == 1


async def test_a_certificate_for_another_host_is_refused(tmp_path: Path) -> None:
    """Unless the URL says that names do not matter."""
    certified = self_signed(tmp_path, host="DNS:elsewhere.example")
    port = free_port()
    with redis_server("--tls-port", str(port), *certified.of_server, "--tls-auth-clients", "no"):
        url = f"rediss://127.0.0.1:{port}?{certified.trusting}"
        with pytest.raises(StoreUnavailable):
            await opened_store(url).ping()
        lenient = opened_store(f"{url}&ssl_check_hostname=no")
        await lenient.ping()
        await lenient.close()
