"""The operator's desk on a store in memory: what is found, what is changed, and what is said to what cannot be."""

from collections.abc import Callable
from datetime import UTC
from typing import Any

import pytest

from proxy.config import load
from proxy.desk import Desk, Raise, TeamRaise
from proxy.errors import BadRequest
from proxy.events import OperatorActed, OperatorAction
from proxy.exchange import Setting
from proxy.identity import Keys
from proxy.models import Reason
from proxy.pardon import pardon_of
from proxy.prices import Prices
from proxy.state import VERSION, Lane, Record, Stop, dump
from proxy.store import Account, Ceiling, Listing, MemoryStore, Settlement, Unit
from proxy.tenants import Tenants
from proxy.views import PolicyView, TeamView

NOON = 1_700_000_000.0
CONFIG = f"""
teams:
  red: {{keys: ["sha256:{"a" * 64}"], budgets: [{{steps: 5, per: day}}], models: ["gpt-*"]}}
  blue: {{keys: ["sha256:{"b" * 64}"]}}
"""


class Office:
    """A desk, its store, and what it told."""

    def __init__(self, config: str = CONFIG) -> None:
        self.now = NOON
        self.told: list[OperatorActed] = []
        self.store = MemoryStore(lambda: self.now, lambda size: b"\x07" * size)
        loaded = load(config, {})
        tenants = Tenants(loaded, zone=UTC, prices=Prices({}, {}))
        anything: Any = None
        setting = Setting(tenants, anything, anything, [], anything, (), 1, lambda: 0.0, lambda: self.now, anything)
        self.desk = Desk(self.store, lambda: setting, ttl=60.0, emit=self.told.append)
        self.keys = Keys(b"\x07" * 32)

    async def session(self, key: bytes, name: str, team: str = "", *stops: Stop | None, **settled: Any) -> None:
        """A session with a lane for each stop."""
        lanes = [Lane(0, 0, 0, 1.0, stop=stop, main=not number) for number, stop in enumerate(stops)]
        record = dump(Record(VERSION, self.keys.secret_id(), lanes=lanes))
        settlement = Settlement("l" + name, 1, 10, 5, 0, **settled)
        listing = Listing(team, name)
        await self.store.commit(key, record=record, version=0, settlements=[settlement], links=(), ttl=60.0, listing=listing)

    async def note(self, key: bytes) -> Any:
        (look,) = await self.store.peek([Account(key)])
        assert look is not None
        return pardon_of(look.note)


ONE, TWO = b"\x01" * 16, b"\x02" * 16
LOOP = Stop(Reason.CYCLE, "t", 5, 5, [5, 6])


async def refusal(work: Callable[[], Any]) -> tuple[int, str]:
    with pytest.raises(BadRequest) as caught:
        await work()
    return caught.value.status, caught.value.message


async def test_a_session_is_found_by_key_and_by_name() -> None:
    """A name that two have is no answer until the team is said; neither is one that has ended."""
    office = Office()
    await office.session(ONE, "run", "red")
    await office.session(TWO, "run", "blue")
    await office.session(b"\x03" * 16, "run 2", "red")

    assert (await office.desk.show(ONE.hex(), None)).session == ONE.hex()
    assert (await office.desk.show("run", "blue")).session == TWO.hex()
    status, said = await refusal(lambda: office.desk.show("run", None))
    assert status == 409 and ONE.hex() in said and TWO.hex() in said
    for missing in ("nobody", "ff" * 16):
        assert (await refusal(lambda missing=missing: office.desk.show(missing, None)))[0] == 404  # type: ignore[misc]
    assert (await refusal(lambda: office.desk.show("run", "green")))[1] == "no team 'green'; teams in the configuration: red, blue"
    assert (await refusal(lambda: Office("{}").desk.page(after="", count=5, team="x", search="")))[1].endswith("configuration: none")


async def test_a_name_that_looks_like_a_key_is_a_name() -> None:
    """Many clients name their sessions so; a key comes first."""
    office = Office()
    await office.session(ONE, TWO.hex(), "red")
    named = await office.desk.show(TWO.hex(), None)
    await office.session(TWO, "other", "red")
    keyed = await office.desk.show(TWO.hex(), None)

    assert (named.session, keyed.session) == (ONE.hex(), TWO.hex())


async def test_sessions_come_in_parts() -> None:
    """With their sums."""
    office = Office()
    for number in range(3):
        office.now += 1
        await office.session(bytes([number]) * 16, f"run {number}", "red")
    first = await office.desk.page(after="", count=2, team="red", search="run")
    rest = await office.desk.page(after=first.next or "", count=2, team=None, search="")
    empty = await office.desk.page(after="", count=2, team="blue", search="")

    assert [row.name for row in (*first.sessions, *rest.sessions)] == ["run 2", "run 1", "run 0"]
    assert (rest.next, empty.sessions, first.sessions[0].steps) == (None, [], 1)


async def test_marks_are_put_on_and_taken_off() -> None:
    """And told, with who did it."""
    office = Office()
    await office.session(ONE, "run", "red")
    states = [
        (await office.desk.mark("run", None, action, "abc")).state
        for action in (OperatorAction.PAUSE, OperatorAction.STOP, OperatorAction.RESUME)
    ]

    assert states == ["paused", "stopped", "active"]
    assert office.told[0] == OperatorActed(OperatorAction.PAUSE, "abc", ONE.hex(), "run", "red")


async def test_a_session_that_is_resumed_does_not_stand_stopped() -> None:
    """Nor do those below it, after requests that its mark refused; one that a loop stopped still does."""
    office = Office()
    await office.session(ONE, "paused", stop="operator")
    await office.session(TWO, "looped", stop="cycle")
    views = [await office.desk.mark(name, None, OperatorAction.RESUME, "abc") for name in ("paused", "looped")]

    assert [(view.state, view.reason) for view in views] == [("active", None), ("stopped", "cycle")]


async def test_a_reset_forgives_and_lifts() -> None:
    """Each under a number of its own; a stop by an operator goes, a pause stays."""
    office = Office()
    await office.session(ONE, "run", "", LOOP, stop="cycle")
    await office.desk.mark("run", None, OperatorAction.STOP, "abc")
    view = await office.desk.reset("run", None, "abc")
    first = await office.note(ONE)
    await office.desk.mark("run", None, OperatorAction.PAUSE, "abc")
    again = await office.desk.reset("run", None, "abc")
    second = await office.note(ONE)

    assert (view.state, view.spent.steps, again.state) == ("active", 0, "paused")
    assert (first.reset, second.reset) == (int(NOON * 1000), int(NOON * 1000) + 1)


async def test_limits_are_raised_and_restored() -> None:
    """A run that a budget ended goes on, and one that a loop ended does not."""
    office = Office()
    await office.session(ONE, "spent", stop="step_budget")
    await office.session(TWO, "looped", stop="cycle")
    views = [await office.desk.raised(name, None, Raise(steps=9, cost_usd=1.5, deadline=60.0), "abc") for name in ("spent", "looped")]
    restored = await office.desk.raised("spent", None, Raise(restore=True), "abc")

    assert [view.state for view in views] == ["active", "stopped"]
    assert [(limit.unit, limit.limit, limit.raised) for limit in views[0].limits] == [
        ("steps", 9, True),
        ("cost_usd", 1.5, True),
        ("deadline", 60.0, True),
    ]
    assert restored.limits == []


@pytest.mark.parametrize("limits", [Raise(), Raise(steps=-1), Raise(cost_usd=float("nan")), Raise(tokens=2**60), Raise(deadline=1e12)])
async def test_a_limit_that_cannot_be_is_refused(limits: Raise) -> None:
    """And nothing is changed or told."""
    office = Office()
    await office.session(ONE, "run")
    assert (await refusal(lambda: office.desk.raised("run", None, limits, "abc")))[0] == 400
    assert office.told == []


RED_AND_MORE = f"""
teams:
  red: {{keys: ["sha256:{"a" * 64}"], budgets: [{{steps: 5, cost_usd: 1.5, per: day}}, {{steps: 50, per: month}}]}}
  blue: {{keys: ["sha256:{"b" * 64}"]}}
"""


def limits(view: TeamView | PolicyView) -> list[tuple[str, str, float, bool]]:
    shown = view.limits if isinstance(view, TeamView) else view.team_limits
    return [(one.unit, one.per, one.limit, one.raised) for one in shown]


async def test_a_teams_budgets_are_raised_until_their_windows_end() -> None:
    """Shown with its spending and its rules, told with who and what, and taken back."""
    office = Office(RED_AND_MORE)
    view = await office.desk.raise_team("red", TeamRaise(per="day", steps=9, cost_usd=2.5), "abc")
    rules = await office.desk.policy({}, "red", "o3")
    office.now += 86_400.0
    tomorrow = await office.desk.team("red")
    again = await office.desk.raise_team("red", TeamRaise(per="month", steps=0), "abc")
    back = await office.desk.raise_team("red", TeamRaise(restore=True), "abc")

    own = [("steps", "day", 5, False), ("steps", "month", 50, False), ("cost_usd", "day", 1.5, False)]
    assert limits(view) == limits(rules) == [("steps", "day", 9, True), ("steps", "month", 50, False), ("cost_usd", "day", 2.5, True)]
    assert limits(tomorrow) == limits(back) == own
    assert limits(again)[1] == ("steps", "month", 0, True)
    assert [(one.session, one.team, one.who, one.change) for one in office.told] == [
        ("", "red", "abc", {"per": "day", "steps": 9, "cost_usd": 2.5}),
        ("", "red", "abc", {"per": "month", "steps": 0}),
        ("", "red", "abc", {"restore": True}),
    ]


async def test_a_budget_that_a_team_does_not_have_is_not_raised() -> None:
    """Nor one of several without saying which; what it has is said."""
    office = Office(RED_AND_MORE)
    there = "it has: steps per day, steps per month, cost_usd per day; name one, with its window in per"
    for wanted, said in (
        (TeamRaise(steps=9), f"team 'red' has several budgets in steps; {there}"),
        (TeamRaise(steps=9, per="week"), f"team 'red' has no budget in steps per week; {there}"),
        (TeamRaise(tokens=9), f"team 'red' has no budget in tokens; {there}"),
        (TeamRaise(per="day"), "nothing to raise: name a limit, such as steps, tokens or cost_usd, or restore"),
        (TeamRaise(steps=-1), "steps is -1; use a number from 0 (none at all) to 9.00719925474099e+15"),
    ):
        assert (await refusal(lambda wanted=wanted: office.desk.raise_team("red", wanted, "abc")))[1] == said  # type: ignore[misc]
    assert (await refusal(lambda: office.desk.raise_team("blue", TeamRaise(steps=9), "abc")))[1].startswith("team 'blue' has no budget")
    assert (await refusal(lambda: office.desk.raise_team("green", TeamRaise(steps=9), "abc")))[0] == 404
    assert office.told == []
    assert limits(await office.desk.raise_team("red", TeamRaise(cost_usd=2), "abc"))[2] == ("cost_usd", "day", 2, True)


async def test_calls_are_allowed() -> None:
    """Those of every run that stands stopped for calls, or those that are named; what was never stopped needs a name."""
    office = Office()
    text = Stop(Reason.REPEATED_TEXT, "", 5, 5, [9])
    await office.session(ONE, "looped", "", LOOP, None, text, Stop(Reason.REPEATED_CALL, "t", 5, 5, [6, 7]), stop="cycle")
    await office.session(TWO, "said", "", text)
    await office.session(b"\x03" * 16, "fine", "", None)
    view = await office.desk.allow("looped", None, (), "abc")
    chosen = await office.note(ONE)
    await office.desk.allow("looped", None, [f"{11:016x}"], "abc")
    named = await office.note(ONE)

    assert (view.state, chosen.allowed_since(0), named.allowed_since(chosen.allowed)) == ("active", {5, 6, 7}, {11})
    assert named.allowed > chosen.allowed > 0
    assert (await refusal(lambda: office.desk.allow("said", None, (), "abc")))[1].endswith("was not stopped for a call: reset it")
    assert (await refusal(lambda: office.desk.allow("fine", None, (), "abc")))[0] == 409
    assert (await refusal(lambda: office.desk.allow("fine", None, ["bash"], "abc")))[0] == 400


async def test_a_teams_spending() -> None:
    """Now, and by day and model over stated days."""
    office = Office()
    team = Account(office.keys.ledger("red"), (Ceiling(Unit.STEPS, 5, "day 2023-11-14+0000", NOON + 9e4),), team=True)
    await office.session(ONE, "run", "red", accounts=(team,), model="gpt-*", day="2023-11-14")
    views = await office.desk.teams()
    rows = await office.desk.usage("red", None, None)

    assert [(view.team, view.spent.steps) for view in views] == [("red", 1), ("blue", 0)]
    assert (await office.desk.team("red")).limits[0].spent == 1
    assert [(row.day, row.model, row.input_tokens) for row in rows] == [("2023-11-14", "gpt-*", 10)]
    assert await office.desk.usage("red", "2023-11-01", "2023-11-13") == []
    assert await office.desk.usage("red", None, "0001-01-05") == []
    for first, last in (("2023-11-15", None), ("2000-01-01", None), ("14.11.2023", None), (None, "2023-02-30")):
        assert (await refusal(lambda first=first, last=last: office.desk.usage("red", first, last)))[0] == 400  # type: ignore[misc]
    assert await Office("{}").desk.teams() == []


async def test_rules_are_those_of_a_team_or_of_a_keys_team() -> None:
    """A key that nobody has is none."""
    desk = Office().desk
    assert (await desk.policy({}, "red", "o3")).allowed is False
    with pytest.raises(BadRequest, match="no team's"):
        await desk.policy({"x-lastcall-key": "nobody"}, None, "o3")
    everybody = await Office("{}").desk.policy({}, None, "o3")
    assert (everybody.team, everybody.allowed, everybody.upstreams["chat"], everybody.price) == ("", True, None, None)
