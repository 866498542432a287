"""Replicas of two releases on one store: each reads what the other wrote, and what it cannot read costs no budget and no lease."""

from typing import Any

import msgspec
import pytest
from msgspec import NODEFAULT, inspect

from proxy import state
from proxy.policy import Budgets, Policy
from proxy.state import VERSION, Record, dump, load
from tests.in_process import looping
from tests.sessions import LS, World, calls, says

KEY = 7


def made(kind: inspect.Type) -> Any:
    """A value of a type with nothing left out, so that a field that a record gains is tried here too."""
    match kind:
        case inspect.StructType() | inspect.DataclassType():
            return kind.cls(*[made(field.type) for field in kind.fields])
        case inspect.ListType() | inspect.VarTupleType():
            return [made(kind.item_type)]
        case inspect.UnionType():
            return made(next(one for one in kind.types if not isinstance(one, inspect.NoneType)))
        case inspect.EnumType():
            return next(iter(kind.cls))
        case inspect.IntType():
            return 3
        case inspect.FloatType():
            return 2.5
        case inspect.BoolType():
            return True
        case inspect.StrType():
            return "text"
        case inspect.BytesType():
            return b"bytes"
    raise NotImplementedError(kind)


def written(value: Any, *, later: bool) -> Any:
    """What is stored of it by the release after this one, whose structures have a field more at their ends, or by the one before."""
    if isinstance(value, list):
        return [written(one, later=later) for one in value]
    if not isinstance(value, msgspec.Struct):
        return value
    fields = msgspec.structs.fields(type(value))
    last = fields[-1]
    if not later and (last.default is not NODEFAULT or last.default_factory is not NODEFAULT):
        fields = fields[:-1]
    kept = {field.name: written(getattr(value, field.name), later=later) for field in fields}
    if later:
        kept["appended"] = "of a later release"
    return [*kept.values()] if value.__struct_config__.array_like else kept


@pytest.fixture
def record() -> Record:
    full: Record = made(inspect.type_info(Record))
    full.version, full.key = VERSION, KEY
    return full


def test_what_the_next_release_writes_is_read(record: Record) -> None:
    """With more behind every structure's end, everything that we know is there."""
    assert load(msgspec.msgpack.encode(written(record, later=True)), KEY) == load(dump(record), KEY) == record


def test_what_the_last_release_wrote_is_read(record: Record) -> None:
    """Without what was appended since, everything else is there."""
    loaded = load(msgspec.msgpack.encode(written(record, later=False)), KEY)

    assert loaded.lanes[0].nodes[0].calls[0].call == record.lanes[0].nodes[0].calls[0].call
    assert (loaded.names, loaded.stopped, loaded.line, loaded.reset) == (record.names, record.stopped, record.line, record.reset)
    assert (loaded.allowed, record.allowed) == (0, 3)


async def test_two_versions_in_turn_spend_one_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither reads the other's record, so that each begins it anew; steps, tokens and leases are the store's, and exact."""
    world = World()
    policy = Policy(budgets=Budgets(steps=6))
    replicas = [world.process(), world.process()]
    seen = []
    for turn in range(7):
        sessions = replicas[turn % 2]
        monkeypatch.setattr(state, "VERSION", VERSION + turn % 2)
        session = await world.open(looping(turn), policy=policy, sessions=sessions, name="a")
        seen.append((session.step, bool(session.spending.refused), bool(session.spending.last)))
        if not session.spending.refused:
            await world.commit(session, calls(LS), sessions=sessions)
    ledger = world.entry(session).book.ledger

    assert [step for step, refused, _ in seen if not refused] == [f"{step}/6" for step in range(1, 7)]
    assert [(refused, last) for _, refused, last in seen[-2:]] == [(False, True), (True, False)]
    assert (ledger.steps, ledger.tokens, ledger.reserved_steps) == (6, 6 * 13, 0)


async def test_a_session_found_by_its_history_is_found_by_both_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Links are the store's as well."""
    world = World()
    first = await world.open()
    await world.commit(first, calls(LS))
    monkeypatch.setattr(state, "VERSION", VERSION + 1)
    other = world.process()
    second = await world.open(looping(1), sessions=other)
    await world.commit(second, says("done"), sessions=other)

    assert second.key == first.key
    assert second.step == "2"
