"""Records of one process."""

import pytest

from proxy import encoded
from proxy.records import Records
from proxy.state import VERSION, KeptCall, Lane, Record, dump, load, put

KEY = 7


def record(messages: int) -> Record:
    lane = Lane(0, 1, 2, 0.0, answers=[*range(messages)])
    put(lane, [(KeptCall(number, 3, 0),) for number in range(messages)])
    return Record(VERSION, KEY, lanes=[lane])


def test_a_record_that_comes_back_as_it_was_written_is_not_read_again() -> None:
    """It is handed out once: the next one to ask gets a copy of his own."""
    records, mine = Records(), record(3)
    data = dump(mine)
    records.wrote(b"session", data, mine)

    assert records.load(b"session", data, KEY) is mine
    again = records.load(b"session", data, KEY)
    assert again is not mine
    assert again == mine


def test_a_record_that_somebody_else_wrote_is_read() -> None:
    """Also one under another secret, and none at all."""
    records, mine = Records(), record(3)
    others = dump(record(4))
    for data, key in ((others, KEY), (dump(mine), KEY + 1), (None, KEY)):
        records.wrote(b"session", dump(mine), mine)
        assert records.load(b"session", data, key) == load(data, key)


def test_what_was_written_before_is_not_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the record comes back as it was written or is read from what another process wrote. Nor of sessions that were forgotten."""
    records, mine, encode = Records(most=2), record(20), encoded._encode
    new: list[object] = []

    def seen(values: list[object]) -> bytes:
        new.extend([one for one in values if one is not None])
        return encode(values)

    monkeypatch.setattr(encoded, "_encode", seen)
    assert records.dump(b"session", mine) == dump(mine)
    for _ in range(2):
        new.clear()
        lane = mine.lanes[0]
        lane.answers.append(99)
        lane.kept.append((KeptCall(98, 97, 0),))
        lane.calls += 1
        assert records.dump(b"session", mine) == dump(mine)
        assert new == [99, (KeptCall(98, 97, 0),)]
        mine = load(dump(mine), KEY)

    for session in (b"another", b"yet another"):
        records.dump(session, record(1))
    new.clear()
    records.dump(b"session", mine)
    assert len(new) == 44


def test_the_records_at_hand_are_the_newest() -> None:
    """Many sessions are never asked again."""
    records, all_ = Records(most=2), [record(number) for number in range(3)]
    for number, one in enumerate(all_):
        records.wrote(b"%d" % number, dump(one), one)

    found = [records.load(b"%d" % number, dump(one), KEY) is one for number, one in enumerate(all_)]
    assert found == [False, True, True]
