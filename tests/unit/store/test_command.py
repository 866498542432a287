"""Commands as they go over the wire, next to what hiredis makes of the same arguments."""

import hiredis
import msgspec
import pytest

from proxy.store import Reservation, Settlement, wire
from proxy.store.command import Field, Script, run, said

SCRIPT = Script.load("list.lua")


def packed(*fields: Field) -> bytes:
    made: bytes = hiredis.pack_command(fields)  # type: ignore[arg-type]  # its stub takes tuples of one field only
    return made


def heard(words: bytes) -> list[bytes]:
    reader = hiredis.Reader()
    reader.feed(words)
    fields: list[bytes] = reader.gets()
    return fields


@pytest.mark.parametrize(
    "fields", [(), (b"key",), ("kéy", "x" * 300, 1, -2.5, b"\r\n\0"), ("", b"", 0)], ids=["alone", "a key", "all kinds", "empty"]
)
def test_a_command_is_said_as_hiredis_says_it(fields: tuple[Field, ...]) -> None:
    """Its key comes first."""
    command = said("SET", *fields)

    assert command.words == packed("SET", *fields)
    assert packed(command.key) == packed(*fields[:1] or ("",))
    assert command.in_full == command


def test_a_script_is_run_by_its_hash_or_by_its_text() -> None:
    """With the same keys and arguments behind."""
    command = run(SCRIPT, [b"one", b"two"], b"\0argument", 3)
    words = command.words.split(b"\r\n")
    text = command.in_full.words.removeprefix(b"*7\r\n$4\r\nEVAL\r\n").partition(b"\r\n")[2]

    assert command.words == packed("EVALSHA", words[4], 2, b"one", b"two", b"\0argument", 3)
    assert text.startswith(b"#!lua")
    assert text.endswith(b"\r\n$1\r\n2" + command.words.partition(b"\r\n$1\r\n2")[2])
    assert (command.key, command.in_full.key) == (b"one", b"one")


def test_links_are_set_for_as_long_as_the_session_lives() -> None:
    """Each under a key of its own."""
    first, second = wire.links([b"a" * 16, b"b" * 64], b"session", 1.5)

    assert first.words == packed("SET", "lastcall:link:" + "61" * 16, b"session", "PX", 1500)
    assert second.words == packed("SET", second.key, b"session", "PX", 1500)
    assert wire.links([], b"session", 1.5) == []


@pytest.mark.parametrize("record", [None, b"record\r\n" * 100])
def test_a_settlement_and_its_record_are_two_arguments(record: bytes | None) -> None:
    """Behind three keys of one slot; what else is to be said is one list."""
    command = wire.commit_session(b"session", record, 7, [Settlement("lease", 1, 2, 3, 4)], 10.0, listed=False)
    name, _, count, ledger, *_, asked, last = heard(command.words)

    assert (name, count, ledger, last) == (b"EVALSHA", b"3", command.key, record or b"")
    assert command.key == b"lastcall:{" + b"session".hex().encode() + b"}:ledger"
    assert msgspec.msgpack.decode(asked)[:3] == [10_000, record is not None, 7]


def test_a_number_that_no_integer_of_64_bits_holds_is_told_as_a_double() -> None:
    """Scripts count in doubles; what a client may ask for must not end a request with an error."""
    command = wire.open_session(b"session", Reservation("lease", 1, 4000, 1000, 2**70, 200, 100, 600.0), 10.0)
    asked = msgspec.msgpack.decode(heard(command.words)[-1])

    assert asked[7] == 2.0**70
    assert asked[1:4] == ["lease", "1", 1]
