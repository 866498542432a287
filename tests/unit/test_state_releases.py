"""Replicas of two releases on one store: each reads what the other wrote, keeps what it does not know, and no budget depends on either.

With processes, and verdicts: `tests/e2e/test_two_releases.py`.
"""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from msgspec import NODEFAULT, inspect

from proxy import state
from proxy.policy import Budgets, Policy
from proxy.state import MAX_BYTES, MINOR, VERSION, Form, KeptCall, Lane, Record, dump, load, put
from tests.in_process import looping
from tests.sessions import LS, World, calls, says

KEY = 7
PLAIN = {inspect.IntType: 3, inspect.FloatType: 2.5, inspect.BoolType: True, inspect.StrType: "text", inspect.BytesType: b"bytes"}


def made(kind: inspect.Type) -> Any:
    """A value of a type with nothing left out, so that a field that a record gains is tried here too."""
    match kind:
        case inspect.StructType() | inspect.DataclassType():
            return kind.cls(*[made(field.type) for field in kind.fields])
        case inspect.ListType():
            return [made(kind.item_type)]
        case inspect.VarTupleType():
            return (made(kind.item_type),)
        case inspect.TupleType():
            return tuple([made(one) for one in kind.item_types])
        case inspect.UnionType():
            return made(next(one for one in kind.types if not isinstance(one, inspect.NoneType)))
        case inspect.EnumType():
            return next(iter(kind.cls))
    return PLAIN[type(kind)]


def written(value: Any, *, later: bool) -> Any:
    """What is stored of it by the release after this one, whose structures have a field more at their ends, or by the one before."""
    if isinstance(value, (list, tuple)):
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
    full.version, full.key, full.minor = VERSION, KEY, MINOR
    return full


def read_back(data: bytes) -> Any:
    return msgspec.msgpack.decode(data)


def test_what_the_next_release_writes_is_read(record: Record) -> None:
    """With more behind every structure's end, everything that we know is there."""
    assert load(msgspec.msgpack.encode(written(record, later=True)), KEY) == load(dump(record), KEY) == record


def test_what_the_last_release_wrote_is_read(record: Record) -> None:
    """Without what was appended since, everything else is there."""
    loaded = load(msgspec.msgpack.encode(written(record, later=False)), KEY)

    assert loaded.lanes[0].kept[0][0].call == record.lanes[0].kept[0][0].call
    assert (loaded.names, loaded.stopped, loaded.line, loaded.reset) == (record.names, record.stopped, record.line, record.reset)
    newest = msgspec.structs.fields(Lane)[-1]
    assert getattr(loaded.lanes[0], newest.name) == (newest.default if newest.default is not NODEFAULT else newest.default_factory())
    assert getattr(loaded.lanes[0], newest.name) != getattr(record.lanes[0], newest.name)


def test_what_the_next_release_wrote_is_written_again(record: Record) -> None:
    """To the byte, at every depth, as long as nothing changes."""
    record.minor = MINOR + 1
    data = msgspec.msgpack.encode(written(record, later=True))

    assert dump(load(data, KEY)) == data


def test_what_the_next_release_wrote_goes_with_what_it_was_written_of(record: Record) -> None:
    """A call more and a lane less, of this release: the others keep what was appended to them."""
    record.minor = MINOR + 1
    record.lanes.append(made(inspect.type_info(Lane)))
    loaded = load(msgspec.msgpack.encode(written(record, later=True)), KEY)
    del loaded.lanes[0]
    loaded.lanes[0].pruned = [9]
    (calls,) = loaded.lanes[0].kept
    put(loaded.lanes[0], [(KeptCall(1, 2, 0), *calls)])
    (lane,) = read_back(dump(loaded))[Record.__struct_fields__.index("lanes")]
    stored = dict(zip([*Lane.__struct_fields__, "appended"], lane, strict=True))
    new, known = stored["kept"][0]

    assert (stored["pruned"], stored["appended"]) == ([9], "of a later release")
    assert (len(new), known[-1]) == (len(KeptCall.__struct_fields__), "of a later release")


def test_a_record_of_the_next_release_is_bounded_too(record: Record) -> None:
    """With what was appended to it."""
    record.minor = MINOR + 1
    lane = record.lanes[0]
    lane.before, lane.places = [], []
    lane.answers = [*range(200)]
    put(lane, [(KeptCall(1 << 60, 1 << 60, 0),) * 4] * 200)
    data = dump(load(msgspec.msgpack.encode(written(record, later=True)), KEY))

    assert MAX_BYTES / 4 < len(data) <= MAX_BYTES
    assert load(data, KEY).lanes[0].answers[-1] == 199


@pytest.mark.parametrize("size", [MAX_BYTES, 2 * MAX_BYTES])
def test_a_record_of_a_release_with_another_bound_comes_to_an_end(record: Record, size: int) -> None:
    """What was appended may be more than a whole record of this release: then that goes, and who is above stays."""
    record.minor = MINOR + 1
    data = dump(load(msgspec.msgpack.encode([*written(record, later=True), "x" * size]), KEY))

    assert len(data) <= MAX_BYTES
    assert (load(data, KEY).line, load(data, KEY).stopped) == (record.line, record.stopped)


def test_a_record_that_nothing_is_left_of_is_written_as_it_is(record: Record) -> None:
    """Whatever it is that makes it so large: nobody wrote it, and nobody waits for it to become smaller."""
    record.line = [b"x" * MAX_BYTES]
    assert load(dump(record), KEY).line == record.line


def test_a_record_of_this_release_says_so(record: Record) -> None:
    """Whoever wrote it before: then nothing is missing that this release appends."""
    record.minor = 0
    assert load(dump(record), KEY).minor == MINOR


def test_a_version_that_is_known_is_kept(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the first of the two releases of a new version: sessions begin in the old one, and those of the new one stay so."""
    this, other = (
        state._FORMS[0],
        Form(VERSION + 1, lambda data: _reversed(data[::-1]), lambda record, _: msgspec.msgpack.encode(record)[::-1]),
    )
    monkeypatch.setattr(state, "_FORMS", (this, other))
    assert load(None, KEY).version == VERSION
    record.version = VERSION + 1
    data = dump(record)
    loaded = load(data, KEY)

    assert read_back(data[::-1])[0] == VERSION + 1
    assert (loaded, dump(loaded)) == (record, data)
    monkeypatch.setattr(state, "_FORMS", (other, this))
    assert load(None, KEY).version == VERSION + 1
    assert load(dump(Record(VERSION, KEY, ["t"])), KEY).names == ["t"]


def _reversed(data: bytes) -> Record:
    return msgspec.msgpack.decode(data, type=Record)


async def test_two_versions_in_turn_spend_one_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of which neither knows the other's, so that each begins the record anew; steps, tokens and leases are the store's, and exact."""
    world = World()
    policy = Policy(budgets=Budgets(steps=6))
    replicas = [world.process(), world.process()]
    seen, (form,) = [], state._FORMS
    for turn in range(7):
        sessions = replicas[turn % 2]
        monkeypatch.setattr(state, "_FORMS", (replace(form, version=VERSION + turn % 2),))
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
    monkeypatch.setattr(state, "_FORMS", (replace(state._FORMS[0], version=VERSION + 1),))
    other = world.process()
    second = await world.open(looping(1), sessions=other)
    await world.commit(second, says("done"), sessions=other)

    assert second.key == first.key
    assert second.step == "2"
