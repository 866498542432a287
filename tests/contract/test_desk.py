"""Operators who act on one session in the same instant, on every store: each decides on what the other left, and no change is lost."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from proxy.desk import Desk, Raise
from proxy.errors import BadRequest
from proxy.events import OperatorActed, OperatorAction
from proxy.pardon import Pardon, pardon_of
from proxy.store import Account, Mark, Peeked, Settlement, Store
from tests.stores import TTL, settle

X, Y = f"{5:016x}", f"{6:016x}"
Act = Callable[[Desk], Awaitable[object]]


class Meanwhile:
    """A store between whose look and whose change somebody else does something."""

    def __init__(self, store: Store, act: Callable[[], Awaitable[object]], times: int) -> None:
        self._store = store
        self._act = act
        self._times = times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def amend(self, *arguments: Any) -> Peeked | None:
        if self._times:
            self._times -= 1
            await self._act()
        return await self._store.amend(*arguments)


def desk_on(store: Any, told: list[OperatorActed]) -> Desk:
    anything: Any = None
    return Desk(store, lambda: anything, ttl=TTL, emit=told.append)


async def after(store: Store, session: bytes, first: Act, meanwhile: Act) -> tuple[Peeked, Pardon]:
    """How a session stands after `first`, while whose look another desk does something."""
    told: list[OperatorActed] = []
    other = desk_on(store, told)
    await first(desk_on(Meanwhile(store, lambda: meanwhile(other), times=1), told))
    (found,) = await store.peek([Account(session)])
    assert found is not None and len(told) == 2
    return found, pardon_of(found.note)


async def test_neither_of_two_allowances_is_lost(store: Store, session: bytes) -> None:
    """Whichever replica they came to."""
    name = session.hex()
    await settle(store, session, Settlement("a", 1, 10, 5, 100))
    _, pardon = await after(store, session, lambda it: it.allow(name, None, [X], "a"), lambda it: it.allow(name, None, [Y], "b"))

    assert pardon.allowed_since(0) == {5, 6}


async def test_a_reset_is_not_lost_to_an_allowance(store: Store, session: bytes) -> None:
    """Nor forgotten by it."""
    name = session.hex()
    await settle(store, session, Settlement("a", 1, 10, 5, 100))
    _, pardon = await after(store, session, lambda it: it.allow(name, None, [X], "a"), lambda it: it.reset(name, None, "b"))

    assert pardon.reset > 0
    assert pardon.allowed_since(0) == {5}


async def test_a_pause_is_not_lost_to_a_reset_that_takes_a_stop_off(store: Store, session: bytes) -> None:
    """It saw a stop, and would take a pause off with it."""
    name = session.hex()
    await settle(store, session, Settlement("a", 1, 10, 5, 100))
    await desk_on(store, []).mark(name, None, OperatorAction.STOP, "a")
    found, pardon = await after(
        store, session, lambda it: it.reset(name, None, "a"), lambda it: it.mark(name, None, OperatorAction.PAUSE, "b")
    )

    assert (found.mark, found.ledger.steps, pardon.reset > 0) == (Mark.PAUSED, 0, True)


async def test_a_stop_for_a_loop_is_not_lost_to_a_raised_budget(store: Store, session: bytes) -> None:
    """What stood stopped for a budget when somebody looked stands stopped for a loop when the budget is raised."""
    name = session.hex()
    await settle(store, session, Settlement("a", 1, 10, 5, 100, stop="step_budget"))
    desk = desk_on(Meanwhile(store, lambda: settle(store, session, Settlement("b", 1, 10, 5, 100, stop="cycle")), times=1), [])
    view = await desk.raised(name, None, Raise(steps=9), "a")

    assert (view.state, view.reason) == ("stopped", "cycle")


async def test_whoever_never_gets_a_turn_is_told(store: Store, session: bytes) -> None:
    """Instead of waiting for ever; nothing was done, and nothing is told as done."""
    name = session.hex()
    told: list[OperatorActed] = []
    await settle(store, session, Settlement("a", 1, 10, 5, 100))
    other = desk_on(store, [])
    desk = desk_on(Meanwhile(store, lambda: other.allow(name, None, [Y], "b"), times=1000), told)
    with pytest.raises(BadRequest) as caught:
        await desk.allow(name, None, [X], "a")
    (found,) = await store.peek([Account(session)])

    assert (caught.value.status, caught.value.code, told) == (409, "lastcall_changed_meanwhile", [])
    assert found is not None and pardon_of(found.note).allowed_since(0) == {6}
