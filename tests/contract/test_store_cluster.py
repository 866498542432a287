"""A Redis cluster: a server that is lost, hangs or is replaced, slots that move, and calls whose ledgers lie on several servers."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from redis.crc import key_slot

from proxy.errors import StoreUnavailable
from proxy.events import StoreChanged
from proxy.store import Account, Ceiling, GuardedStore, Listing, Settlement, Store, Unit, longest_call, open_store
from proxy.store.command import Command
from proxy.store.contract import PartUnavailable
from proxy.store.redis import RedisStore
from tests.certificates import self_signed
from tests.layouts import Cluster, client, redis_cluster, slot_of, until
from tests.servers import free_port, redis_server
from tests.stores import TTL, call, cost

RECOVERY_SECONDS = 5.0
TIMEOUT = 1.0  # four times the default: the machine may be busy with other tests


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with redis_cluster() as started:
        yield started


@pytest.fixture
async def store(cluster: Cluster, changes: list[StoreChanged]) -> AsyncIterator[GuardedStore]:
    """As the proxy has it."""
    opened = guarded(cluster.url, changes)
    yield opened
    await opened.close()


def guarded(url: str, changes: list[StoreChanged]) -> GuardedStore:
    inner = open_store(url, clock=time.time, random_bytes=os.urandom, timeout=TIMEOUT, on_change=changes.append)
    longest = longest_call(url, TIMEOUT)
    return GuardedStore(inner, timeout=longest, clock=time.monotonic, on_change=changes.append, fallback_secret=b"f" * 32)


async def committed(store: Store, session: bytes, lease: str = "a") -> None:
    await store.commit(session, record=b"record", version=0, settlements=[cost(lease)], links=(), ttl=TTL)


async def until_open(store: Store, session: bytes, seconds: float = 30.0) -> None:
    """Until that session is served again."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            await store.peek([Account(session)])
        except StoreUnavailable:
            assert time.monotonic() < deadline, "not served again"
            await asyncio.sleep(0.02)
        else:
            return


async def until_held(store: Store, session: bytes, steps: int, seconds: float = 20.0) -> int:
    """What calls under way hold, once it is that many steps or does not come to it."""
    deadline = time.monotonic() + seconds
    while True:
        (look,) = await store.peek([Account(session)])
        held = look.ledger.reserved_steps if look else 0
        if held == steps or time.monotonic() > deadline:
            return held
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("end", ["kill", "pause"])
async def test_a_lost_server_leaves_the_others_sessions_alone(
    end: str, cluster: Cluster, store: GuardedStore, changes: list[StoreChanged]
) -> None:
    """Those on it pay one deadline, and are served again soon after it is back; the others notice nothing."""
    here, there = cluster.key_on(1), cluster.key_on(2)
    for session in (here, there):
        await store.open(session, call("a"), TTL)
        await committed(store, session)
    lost = cluster.primaries[2]
    getattr(lost, end)()
    with pytest.raises(PartUnavailable, match=r"a part of the session store is away"):
        await store.open(there, call("b"), TTL)
    async with asyncio.timeout(15):  # a deadline for each would take 30 s
        for i in range(200):
            assert (await store.open(here, call(f"{i}"), TTL)).ledger.steps == 1
            if i % 3 == 0:
                with pytest.raises(PartUnavailable):
                    await store.open(there, call("b"), TTL)
    assert store.up
    if end == "kill":
        lost.start()
    else:
        lost.resume()
    until(lambda: client(lost).cluster("info")["cluster_state"] == "ok")
    back = time.monotonic()
    await until_open(store, there)
    recovered = time.monotonic() - back

    assert (await store.open(there, call("c"), TTL)).ledger.steps == 1
    assert recovered < RECOVERY_SECONDS
    assert [(change.up, change.node) for change in changes] == [(False, f"127.0.0.1:{lost.port}"), (True, f"127.0.0.1:{lost.port}")]


async def test_a_server_that_hangs_between_two_rounds_of_a_call_leaves_the_others_alone(
    cluster: Cluster, changes: list[StoreChanged], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the first round took: the time of one server is up, not that of the store."""
    inner = open_store(cluster.url, clock=time.time, random_bytes=os.urandom, timeout=TIMEOUT, on_change=changes.append)
    assert isinstance(inner, RedisStore)
    store = GuardedStore(
        inner,
        timeout=longest_call(cluster.url, TIMEOUT),
        clock=time.monotonic,
        on_change=changes.append,
        fallback_secret=b"f" * 32,
    )
    session, team = cluster.key_on(1), Account(cluster.key_on(2), (Ceiling(Unit.TOKENS, 1_500),), team=True)
    await store.open(session, call("a", accounts=(team,)), TTL)
    await committed(store, session)  # teaches what bodies come to: the team is asked twice from here on
    rounds, ask = 0, inner._servers.ask

    async def halting(commands: list[Command], spared: int = 0) -> list[object]:
        nonlocal rounds
        rounds += 1
        replies = await ask(commands, spared)
        if rounds == 1:
            await asyncio.sleep(0.8 * TIMEOUT)
            cluster.primaries[2].pause()
        return replies

    monkeypatch.setattr(inner._servers, "ask", halting)
    try:
        with pytest.raises(PartUnavailable):
            await store.open(session, call("b", accounts=(team,)), TTL)
        assert rounds > 1
        assert (await store.open(cluster.key_on(0), call("c"), TTL)).step == 1
        assert store.up
    finally:
        cluster.primaries[2].resume()
    await until_open(store, team.key)
    await store.close()

    assert {change.node for change in changes} == {f"127.0.0.1:{cluster.primaries[2].port}"}


async def test_a_server_that_hangs_from_the_start_costs_the_others_nothing(cluster: Cluster) -> None:
    """The slots are learnt from those that answer."""
    cluster.primaries[2].pause()
    try:
        store = guarded(cluster.url, [])
        await store.open(cluster.key_on(0), call("a"), TTL)
        await store.close()
    finally:
        cluster.primaries[2].resume()


async def test_a_process_without_the_secret_serves_nobody(cluster: Cluster) -> None:
    """It lies on one server: whoever starts while that hangs finds no session, though others answer."""
    holder = cluster.primaries[cluster.place(int(key_slot(b"lastcall:secret")))]
    holder.pause()
    store = guarded(cluster.url, [])
    try:
        assert not await store.serves()
        assert (store.up, store.lost) == (True, True)
        holder.resume()
        async with asyncio.timeout(RECOVERY_SECONDS):
            while not await store.serves():  # noqa: ASYNC110 - the cluster tells nobody
                await asyncio.sleep(0.05)
        assert not store.lost
    finally:
        holder.resume()
        await store.close()


async def test_a_call_that_is_granted_in_part_holds_nothing(cluster: Cluster, store: GuardedStore) -> None:
    """A team's server is lost: its session's ledger lets go of the call, without waiting for the lease."""
    session, team = cluster.key_on(1), Account(cluster.key_on(2), (Ceiling(Unit.STEPS, 9),), team=True)
    await store.open(session, call("a", accounts=(team,)), TTL)
    cluster.primaries[2].kill()
    with pytest.raises(PartUnavailable) as unknown:
        await store.open(session, call("b", accounts=(team,)), TTL)
    held = await until_held(store, session, 1)
    with pytest.raises(PartUnavailable) as known:
        await store.open(session, call("c", accounts=(team,)), TTL)
    with pytest.raises(PartUnavailable):
        await store.renew(session, "a", [team], 60.0)
    cluster.primaries[2].start()
    await until_open(store, team.key)

    assert held == 1
    assert (unknown.value.asked, known.value.asked) == (True, False)
    assert await store.renew(session, "a", [team], 60.0)


async def test_what_is_owed_to_a_lost_server_is_delivered_once(cluster: Cluster, store: GuardedStore) -> None:
    """And the session, whose server was there, is charged once too."""
    session, team = cluster.key_on(1), Account(cluster.key_on(2), (), team=True)
    await store.open(session, call("a", accounts=(team,)), TTL)
    cluster.primaries[2].kill()
    settlement = Settlement("a", 1, 100, 50, 4000, accounts=(team,))
    with pytest.raises(PartUnavailable):
        await store.commit(session, record=b"record", version=0, settlements=[settlement], links=(), ttl=TTL)
    cluster.primaries[2].start()
    await until_open(store, team.key)
    await store.close()
    paid = await store.peek([Account(session), team])

    assert [look and (look.ledger.steps, look.ledger.tokens) for look in paid] == [(1, 150), (1, 150)]


async def test_a_session_does_not_depend_on_where_it_is_found(cluster: Cluster, store: GuardedStore) -> None:
    """Its links and its place in the index may lie on a lost server: it is settled all the same, and found by the links that are left."""
    session, lost = cluster.key_on(0), cluster.primaries[1]  # no replica takes its place, however long it is away
    assert cluster.place(int(key_slot(b"lastcall:sessions"))) == 1
    links = [os.urandom(8) for _ in range(24)]
    await store.find(links)
    lost.pause()
    try:
        done = await store.commit(
            session, record=b"r", version=0, settlements=[cost("a")], links=links, ttl=TTL, listing=Listing("tenant", "label")
        )
        found = [await _found(store, link) for link in links]
    finally:
        lost.resume()
    await asyncio.gather(*(until_open(store, cluster.key_on(place)) for place in range(3)))

    assert (done.conflict, done.version) == (False, 1)
    assert {session, None} == set(found)
    with_lost_first = sorted(links, key=lambda link: found[links.index(link)] is not None)
    lost.pause()
    try:
        with pytest.raises(PartUnavailable):
            await store.find(with_lost_first)
        assert await store.find(with_lost_first[::-1]) == session
    finally:
        lost.resume()
    await until_open(store, cluster.key_on(1))


async def _found(store: Store, link: bytes) -> bytes | None:
    """The session behind a link, None where it cannot be had."""
    try:
        return await store.find([link])
    except PartUnavailable:
        return None


async def test_moving_slots_are_followed(cluster: Cluster, store: GuardedStore, changes: list[StoreChanged]) -> None:
    """Half way its keys are out of reach; at their new server they are found before and after all know of it."""
    session = cluster.key_on(1)
    await store.open(session, call("a"), TTL)
    await committed(store, session)
    await store.open(session, call("b"), TTL)
    source, target = client(cluster.primaries[1]), client(cluster.primaries[2])
    slot = slot_of(session)
    target.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", cluster.ids[cluster.primaries[1].port])
    source.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", cluster.ids[cluster.primaries[2].port])
    steps = []
    keys = sorted(source.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 10))
    moving = ["MIGRATE", "127.0.0.1", cluster.primaries[2].port, "", 0, 5000, "KEYS"]
    source.execute_command(*moving, keys[0])
    with pytest.raises(PartUnavailable, match="moving"):
        await store.open(session, call("c"), TTL)
    source.execute_command(*moving, *keys[1:])
    steps.append((await store.open(session, call("c"), TTL)).ledger)
    for server in (cluster.primaries[2], cluster.primaries[1], cluster.primaries[0]):
        client(server).execute_command("CLUSTER", "SETSLOT", slot, "NODE", cluster.ids[cluster.primaries[2].port])
    steps.append((await store.open(session, call("d"), TTL)).ledger)
    target.delete(*keys)
    for server in cluster.primaries:  # as it was, for the other tests
        client(server).execute_command("CLUSTER", "SETSLOT", slot, "NODE", cluster.ids[cluster.primaries[1].port])

    assert [(ledger.steps, ledger.reserved_steps) for ledger in steps] == [(1, 2), (1, 3)]
    assert changes == []


async def test_a_replica_takes_over(changes: list[StoreChanged]) -> None:
    """Soon after it did, the sessions of the lost server are served, with what was settled."""
    with redis_cluster() as cluster:
        store = guarded(cluster.url, changes)
        session = cluster.key_on(0)
        secret = await store.secret()
        await store.open(session, call("a"), TTL)
        await committed(store, session)
        await asyncio.to_thread(cluster.lose_primary)
        with pytest.raises(PartUnavailable):
            await store.open(session, call("b"), TTL)
        promoted = time.monotonic()
        await until_open(store, session)
        recovered = time.monotonic() - promoted
        opened = await store.open(session, call("c"), TTL)
        await store.close()

    assert (opened.record, opened.ledger.steps) == (b"record", 1)
    assert await store.secret() == secret
    assert recovered < RECOVERY_SECONDS
    assert [change.up for change in changes] == [False, True]


async def test_a_cluster_that_is_not_there_is_reported() -> None:
    """Without the password."""
    with redis_server() as alone:
        for port in (alone.port, free_port()):
            url = f"redis+cluster://:hunter2@127.0.0.1:{port}"
            store = open_store(url, clock=time.time, random_bytes=os.urandom, timeout=1.0)
            with pytest.raises(StoreUnavailable) as failure:
                await store.ping()
            await store.close()
            assert "hunter2" not in failure.value.message


async def test_a_cluster_may_be_encrypted(tmp_path: Path) -> None:
    """`rediss+cluster://` speaks TLS to the servers it learns of as well."""
    certified, port = self_signed(tmp_path), free_port()
    with redis_server("--cluster-enabled", "yes", "--tls-cluster", "yes", "--tls-port", str(port), *certified.of_server) as alone:
        client(alone).execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        until(lambda: client(alone).cluster("info")["cluster_state"] == "ok")
        store, wary = [
            open_store(f"rediss+cluster://127.0.0.1:{port}?{options}", clock=time.time, random_bytes=os.urandom, timeout=5.0)
            for options in (f"{certified.trusting}&{certified.showing}", certified.showing)
        ]
        opened = await store.open(os.urandom(8), call("a"), TTL)
        await store.close()
        with pytest.raises(StoreUnavailable):
            await wary.ping()
        await wary.close()

    assert opened.step == 1
