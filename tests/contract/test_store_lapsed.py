"""Leases that ran out while their calls lived on, as of a process that was paused: what of it can pass a ceiling, on every store."""

import asyncio
import os
from collections.abc import Callable
from typing import Any

from proxy.leases import Leases
from proxy.store import Account, Ceiling, Reservation, Store, Unit
from tests.contract.test_store_accounts import account, paid, spent, team
from tests.stores import TTL, call, refused, settle, until_expired

__all__ = ["team"]

ONE = 1500  # tokens that a call holds
SHORT = 0.2


def asked(lease: str, paying: Account, expires_in: float = 60.0) -> Reservation:
    return call(lease, accounts=(paying,), expires_in=expires_in)


class Paused:
    """A process's leases; nothing of it happens but in `tick`."""

    def __init__(self, store: Store) -> None:
        self.leases = Leases(store, TTL, self._later)
        self._work: list[Callable[[], object]] = []

    def _later(self, seconds: float, work: Callable[[], object]) -> Any:
        self._work.append(work)
        return asyncio.get_running_loop().call_soon(lambda: None)

    async def tick(self) -> None:
        """Twice the time after which a call that lasts is renewed."""
        for _ in range(2):
            self._work.pop()()
            assert self.leases._work is not None
            await self.leases._work


async def test_no_more_passes_a_ceiling_than_what_lapsed_calls_settle(store: Store, team: bytes) -> None:
    """Their room was granted to others. It is charged all the same, to the token, and nothing more is granted."""
    paying = account(team, tokens=6 * ONE)
    late = [os.urandom(8).hex() for _ in range(4)]
    for lease in late:
        assert refused(await store.open(os.urandom(16), asked(lease, paying, SHORT), TTL)) is None
    await until_expired(store, os.urandom(16), 2 * SHORT)
    others = [os.urandom(8).hex() for _ in range(10)]
    granted = [lease for lease in others if refused(await store.open(os.urandom(16), asked(lease, paying), TTL)) is None]
    for lease in [*late, *granted]:
        await settle(store, os.urandom(16), paid(lease, paying, input_tokens=1000, output_tokens=500))

    tokens, held = (await spent(store, team))["tokens"]
    assert len(granted) == 6
    assert (tokens, held) == (len([*late, *granted]) * ONE, 0)
    assert tokens <= 6 * ONE + len(late) * ONE
    assert refused(await store.open(os.urandom(16), asked("next", paying), TTL)) == "tokens"


async def test_a_process_that_goes_on_takes_its_room_again(store: Store, session: bytes, team: bytes) -> None:
    """In every ledger, before anybody else has it: then nothing passes the ceiling, however late it settles."""
    paying = account(team, tokens=2 * ONE)
    paused = Paused(store)
    mine = asked("mine", paying, SHORT)
    await store.open(session, mine, TTL)
    paused.leases.hold(session, mine)
    await until_expired(store, os.urandom(16), 2 * SHORT)
    assert refused(await store.open(os.urandom(16), asked("other", paying), TTL)) is None  # which ends what ran out
    await paused.tick()
    third = await store.open(os.urandom(16), asked("third", paying), TTL)
    await settle(store, session, paid("mine", paying, input_tokens=1000, output_tokens=500))
    await settle(store, os.urandom(16), paid("other", paying, input_tokens=1000, output_tokens=500))

    assert refused(third) == "tokens"
    assert (await spent(store, team))["tokens"] == [2 * ONE, 0]


async def test_a_call_whose_room_is_gone_holds_nothing_anywhere(store: Store, session: bytes, team: bytes) -> None:
    """It goes on, and is settled as any."""
    limit = Ceiling(Unit.TOKENS, ONE)
    paying = Account(team, (limit,), team=True)
    paused = Paused(store)
    mine = asked("mine", paying, SHORT)
    await store.open(session, mine, TTL)
    paused.leases.hold(session, mine)
    await until_expired(store, os.urandom(16), 2 * SHORT)
    await store.open(os.urandom(16), asked("other", paying), TTL)
    await paused.tick()
    (own,) = await store.peek([Account(session)])
    await settle(store, session, paid("mine", paying))
    (charged,) = await store.peek([Account(session)])

    assert own is not None and charged is not None
    assert (own.calls, own.ledger.reserved_tokens) == (0, 0)
    assert charged.ledger.tokens == 150
    assert (await spent(store, team))["tokens"] == [150, ONE]
