"""A Redis behind sentinels: a primary that dies, hangs or steps down, a sentinel that hangs, and who may ask."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from proxy.errors import StoreUnavailable
from proxy.events import StoreChanged
from proxy.store import GuardedStore, Store, open_store
from tests.certificates import self_signed
from tests.layouts import MASTER, Sentinels, client, redis_behind_sentinels, sentinel, until
from tests.servers import free_port, redis_server
from tests.stores import TTL, call, cost, settle, until_up, write

RECOVERY_SECONDS = 5.0  # after the promotion
TIMEOUT = 0.5  # twice the default: the machine may be busy with other tests


@pytest.fixture(scope="module")
def group() -> Iterator[Sentinels]:
    with redis_behind_sentinels() as started:
        yield started


def opened_store(url: str) -> Store:
    return open_store(url, clock=time.time, random_bytes=os.urandom, timeout=TIMEOUT)


@pytest.fixture
async def store(group: Sentinels) -> AsyncIterator[Store]:
    opened = opened_store(group.url)
    yield opened
    await opened.close()


@pytest.fixture
async def guarded(group: Sentinels, changes: list[StoreChanged]) -> AsyncIterator[GuardedStore]:
    """As the proxy has it."""
    store = GuardedStore(
        opened_store(group.url), timeout=TIMEOUT, clock=time.monotonic, on_change=changes.append, fallback_secret=b"f" * 32
    )
    yield store
    await store.close()


def until_replicated(group: Sentinels) -> None:
    """Until the replica has what the primary has."""
    until(lambda: client(group.primary).execute_command("WAIT", 1, 100) == 1)


async def test_a_primary_that_steps_down_is_left(group: Sentinels, store: Store) -> None:
    """After a planned failover at most one call is refused: the next finds the new primary."""
    session = os.urandom(8)
    await settle(store, session, cost("a"))
    until_replicated(group)
    before = group.primary
    client(group.sentinels[0]).execute_command("SENTINEL", "FAILOVER", MASTER)
    await asyncio.to_thread(group.until_promoted, before)
    group.demote(before)
    try:
        opened = await store.open(session, call("b"), TTL)
    except StoreUnavailable:
        opened = await store.open(session, call("b"), TTL)

    assert (opened.ledger.steps, opened.ledger.reserved_steps) == (1, 1)


@pytest.mark.parametrize("end", ["kill", "pause"])
async def test_a_lost_primary_is_replaced_without_loss(
    end: str, group: Sentinels, guarded: GuardedStore, changes: list[StoreChanged]
) -> None:
    """Killed or hanging: soon after the promotion the store is back, with what was settled and with what is owed since."""
    session = os.urandom(8)
    secret = await guarded.secret()
    await guarded.open(session, call("a"), TTL)
    await guarded.commit(session, record=b"record", version=0, settlements=[cost("a")], links=(), ttl=TTL)
    until_replicated(group)
    lost = group.primary
    getattr(lost, end)()
    with pytest.raises(StoreUnavailable):
        await guarded.commit(session, record=None, version=0, settlements=[cost("b")], links=(), ttl=TTL)
    await asyncio.to_thread(group.until_promoted, lost)
    promoted = time.monotonic()
    await until_up(guarded)
    recovered = time.monotonic() - promoted
    await guarded.close()  # delivers what is owed
    opened = await guarded.open(session, call("c"), TTL)
    lost.restart()
    group.demote(lost)

    assert (opened.record, opened.version, opened.ledger.steps, opened.ledger.tokens) == (b"record", 1, 2, 300)
    assert await guarded.secret() == secret
    assert recovered < RECOVERY_SECONDS
    assert [change.up for change in changes] == [False, True]


async def test_a_sentinel_that_hangs_costs_nothing(group: Sentinels) -> None:
    """The others are asked at the same time."""
    group.sentinels[0].pause()
    try:
        store = opened_store(group.url)
        async with asyncio.timeout(5.0):
            await write(store, os.urandom(8), b"record", 0)
        await store.close()
    finally:
        group.sentinels[0].resume()


async def test_an_unknown_master_and_dead_sentinels_are_reported(group: Sentinels) -> None:
    """Both are a store that is away, whose message holds no password."""
    wrong = opened_store(group.url.replace("//", "//:hunter2@").replace(MASTER, "other"))
    with pytest.raises(StoreUnavailable, match="MasterNotFoundError") as failure:
        await wrong.ping()
    await wrong.close()
    dead = opened_store(f"redis+sentinel://:hunter2@127.0.0.1:{free_port()}/{MASTER}")
    with pytest.raises(StoreUnavailable) as other:
        await dead.ping()
    await dead.close()

    assert "hunter2" not in failure.value.message + other.value.message


async def test_servers_and_sentinels_may_be_encrypted(tmp_path: Path) -> None:
    """`rediss+sentinel://` speaks TLS to both; `sentinel_tls=no` leaves the sentinels out of it."""
    certified = self_signed(tmp_path)
    port, sentinel_port = free_port(), free_port()
    with (
        redis_server("--tls-port", str(port), *certified.of_server),
        sentinel(tmp_path / "sentinel", port, "--tls-port", str(sentinel_port), *certified.of_server) as watching,
    ):
        until(lambda: client(watching).sentinel_master(MASTER)["flags"] == "master")
        options = f"{certified.trusting}&{certified.showing}"
        for url in (
            f"rediss+sentinel://127.0.0.1:{sentinel_port}/{MASTER}?{options}",
            f"rediss+sentinel://127.0.0.1:{watching.port}/{MASTER}?{options}&sentinel_tls=no",
        ):
            store = opened_store(url)
            await store.ping()
            await store.close()
        wary = opened_store(f"rediss+sentinel://127.0.0.1:{sentinel_port}/{MASTER}?{certified.showing}")
        with pytest.raises(StoreUnavailable):
            await wary.ping()
        await wary.close()
