"""The access lists in docs/stores.md: a user with those rights can do all that Lastcall does, and has none that it does not need."""

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.errors import StoreUnavailable
from proxy.store import Account, Amendment, Ceiling, Listing, Settlement, Store, Unit, open_store
from tests.layouts import MASTER, client, redis_cluster, sentinel
from tests.servers import Server, redis_server, valkey_server
from tests.stores import TTL, call

OF_SERVERS, OF_SENTINELS = re.findall(
    r"^ACL SETUSER (lastcall .*)$", (Path(__file__).parents[2] / "docs/stores.md").read_text(), re.MULTILINE
)
ONLY_IN_CLUSTERS = {"asking", "cluster|slots"}


@pytest.fixture(params=[redis_server, valkey_server], ids=["redis", "valkey"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with request.param("--appendonly", "no") as started:
        yield started


def allow(server: Server, rights: str) -> None:
    assert client(server).execute_command("ACL", "SETUSER", *rights.split()) in (True, "OK")


def opened_store(url: str) -> Store:
    return open_store(url, clock=time.time, random_bytes=os.urandom, timeout=5.0)


async def use(store: Store) -> None:
    """Everything a store can be asked for, with a team that pays."""
    session, team = os.urandom(8), os.urandom(8)
    windows = (Ceiling(Unit.STEPS, 2, "day 1", time.time() + 60),)
    paying = Account(team, windows, calls=2, sessions=1, team=True)
    await store.secret()
    await store.open(session, call("a", accounts=(paying,), expires_in=0.001), TTL)
    await store.open(session, call("b", accounts=(paying,)), TTL)
    await store.renew(session, "b", (paying,), 60.0)
    await store.open(os.urandom(8), call("c", accounts=(Account(os.urandom(8), sessions=1), paying)), TTL)  # one refuses: undone
    settlement = Settlement("b", 1, 100, 50, 4000, windows=("day 1",), accounts=(paying,), model="m", day="2026-11-29", stop="cycle")
    await store.commit(session, record=b"r", version=0, settlements=[settlement], links=[session], ttl=TTL, listing=Listing("t", "l"))
    await store.commit(session, record=b"r", version=0, settlements=[], links=[], ttl=TTL)
    assert await store.find([session]) == session
    assert await store.usage(team, ["2026-11-29"])
    assert len((await store.page()).sessions) > 0
    for change in (Amendment(reset=True, lift=True), Amendment(raised=(Ceiling(Unit.STEPS, 9),)), Amendment(restore=True)):
        await store.amend(Account(session), change, TTL)
    assert all(await store.peek([Account(session), paying]))
    await store.ping()


async def test_the_rights_of_the_manual_are_enough_and_none_too_many(server: Server) -> None:
    """On one server, in a database of its own; the rest of what is allowed is for clusters."""
    allow(server, OF_SERVERS)
    client(server).config_resetstat()
    store = opened_store(server.url.replace("//", "//lastcall:PASSWORD@").replace("/0", "/1"))
    for _ in range(200):  # some commands are sent now and then
        await use(store)
    await store.close()
    used = {name.removeprefix("cmdstat_") for name in client(server).info("commandstats")}
    allowed = {right[1:] for right in OF_SERVERS.split() if right.startswith("+")}

    assert allowed - used == ONLY_IN_CLUSTERS


async def test_other_keys_are_out_of_reach(server: Server) -> None:
    """Of whatever else the server is used for."""
    allow(server, OF_SERVERS.replace("~lastcall:*", "~other:*"))
    store = opened_store(server.url.replace("//", "//lastcall:PASSWORD@"))
    with pytest.raises(StoreUnavailable, match="NoPermissionError") as failure:
        await store.secret()
    await store.close()

    assert "PASSWORD" not in failure.value.message


async def test_the_rights_are_enough_in_a_cluster() -> None:
    """Where slots are asked for."""
    with redis_cluster() as cluster:
        for server in (*cluster.primaries, cluster.replica):
            allow(server, OF_SERVERS)
        store = opened_store(cluster.url.replace("//", "//lastcall:PASSWORD@"))
        for _ in range(20):
            await use(store)
        await store.close()


async def test_sentinels_have_users_of_their_own(tmp_path: Path) -> None:
    """Whose password is not the servers'."""
    with redis_server() as primary, sentinel(tmp_path / "sentinel", primary.port) as watching:
        allow(primary, OF_SERVERS)
        allow(watching, OF_SENTINELS.replace("PASSWORD", "OTHER"))
        client(watching).execute_command("ACL", "SETUSER", "default", "off")
        url = f"redis+sentinel://lastcall:PASSWORD@127.0.0.1:{watching.port}/{MASTER}"
        store = opened_store(f"{url}?sentinel_username=lastcall&sentinel_password=OTHER")
        await use(store)
        await store.close()
        stranger = opened_store(url)
        with pytest.raises(StoreUnavailable):
            await stranger.ping()
        await stranger.close()
