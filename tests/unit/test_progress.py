"""What lies between two occurrences of the same thing."""

from typing import Any

import pytest

from proxy.effects import Effect, Offer
from proxy.outcomes import BRIEF, FAILED, VOID, WAITING
from proxy.policy import Policy, ToolRule
from proxy.progress import Look, Pauses, acts, alike, changed_anew, deed, foreseen, streak, waits, worldly
from proxy.trail import Entry, Step, Trail
from tests.trails import trail

STANDARD = Policy()


def made(name: str, arguments: str | None = "{}", number: int = 1, **rest: Any) -> Entry:
    return Entry(number, name, rest.pop("result", 2), arguments=arguments, **rest)


def lone(*entries: Entry, offer: Offer | None = None) -> Trail:
    return Trail(tuple(Step((entry,)) for entry in entries), offer=offer or Offer())


@pytest.mark.parametrize(
    ("policy", "offer", "expected"),
    [
        (STANDARD, Offer(), Effect.UNKNOWN),
        (STANDARD, Offer(("foo",), b'[{"name": "foo", "annotations": {"readOnlyHint": true}}]'), Effect.READ),
        (
            Policy(tools={"foo": ToolRule(effect=Effect.WRITE)}),
            Offer(("foo",), b'[{"name": "foo", "annotations": {"readOnlyHint": true}}]'),
            Effect.WRITE,
        ),
        (Policy(tools={"foo": ToolRule(exempt=True)}), Offer(), Effect.UNKNOWN),
    ],
)
def test_what_a_call_did(policy: Policy, offer: Offer, expected: Effect) -> None:
    """The operator's word goes before the tool's own, and that before its name."""
    assert deed(policy, lone(offer=offer), made("foo")).effect is expected


@pytest.mark.parametrize(
    ("entry", "policy", "expected"),
    [
        (made("job", flags=WAITING), STANDARD, True),
        (made("sleep"), STANDARD, True),
        (made("job"), STANDARD, False),
        (made("scroll", flags=BRIEF), STANDARD, True),
        (made("scroll", flags=BRIEF | FAILED), STANDARD, False),
        (made("scroll"), STANDARD, False),
        (made("scroll", flags=BRIEF), Policy(tools={"scroll": ToolRule(effect=Effect.WRITE)}), False),
        (made("job"), Policy(tools={"job": ToolRule(effect=Effect.POLL)}), True),
        (made("job", flags=WAITING), Policy(tools={"job": ToolRule(effect=Effect.READ)}), False),
        (made("job", flags=WAITING), Policy(tools={"job": ToolRule(stop_at=9)}), True),
    ],
)
def test_what_waits(entry: Entry, policy: Policy, expected: bool) -> None:
    """By its result, by what it does, or because the operator says so."""
    assert waits(policy, lone(entry), entry) is expected


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("look", False),
        ("look sleep look", True),
        ("look sleep", True),
        ("look other look", False),
        ("sleep look other look", False),
        ("sleep", True),
    ],
)
def test_a_look_between_pauses_is_waiting_too(names: str, expected: bool) -> None:
    """Since the call was made last, or, where it is the newest, since the time before."""
    entries = [made(name, number=len(name)) for name in names.split()]
    assert Pauses(STANDARD, lone(*entries)).hold(made("look", number=4)) is expected


@pytest.mark.parametrize(
    ("entry", "first", "expected"),
    [
        (made("edit"), 0, True),
        (made("edit"), 1, False),
        (made("read_file"), 0, False),
        (made("edit", flags=FAILED), 0, False),
        (made("edit", flags=VOID), 0, False),
        (made("edit", result=0), 0, True),
    ],
)
def test_a_new_change(entry: Entry, first: int, expected: bool) -> None:
    """Made for the first time, of a kind that may change something, and not known to be in vain."""
    assert changed_anew(STANDARD, lone(entry), {1: first}, 0, [entry]) is expected


def test_a_streak_is_counted_backwards_to_what_ends_it() -> None:
    """The step that ends it is part of it if it shows the shape too; steps without calls are passed over."""
    now = trail("A1 B1 A1 - C1 A1")

    def name(letter: str) -> Look:
        return lambda _at, calls: any(entry.name == letter for entry in calls)

    assert streak(now, name("A"), name("B")) == [5, 2]
    assert streak(now, name("A"), name("A")) == [5]
    assert streak(now, name("A"), name("X")) == [5, 2, 0]


def test_calls_about_the_world() -> None:
    """No notes, nothing exempt, nothing that Lastcall wrote."""
    policy = Policy(tools={"quiet": ToolRule(exempt=True)})
    entries = [made("read_file"), made("todo_write"), made("quiet"), made("edit", flags=VOID)]
    assert worldly(policy, entries) == entries[:1]


def test_calls_that_go_the_same_way() -> None:
    """One tool; of a shell, one program."""
    now = lone()
    ls, more, rm = (made("bash", f'{{"command": "{text}"}}') for text in ("ls -l", "ls", "rm x"))
    assert alike(STANDARD, now, ls, more)
    assert not alike(STANDARD, now, ls, rm)
    assert not alike(STANDARD, now, made("a"), made("b"))


@pytest.mark.parametrize(
    ("row", "coming", "expected"),
    [
        (["cat a1", "cat a2"], "cat a3", True),
        (['{"q": "one"}', '{"q": "two"}'], '{"q": "two one"}', True),
        (["cut -d one", "cut -d two -f"], "cut -d two --complement", False),
        (["for x in one", "for x in two"], "one two", False),
        (["same"], "same", True),
        ([], "anything", False),
        ([None, None], None, True),
        (["x" * 5_000 + " one", "x" * 5_000 + " two"], "x" * 5_000 + " three", True),
    ],
    ids=["a number", "known words", "a new word", "words left out", "made before", "no row", "arguments gone", "beyond what is read"],
)
def test_what_has_to_be_expected_of_a_call(row: list[str | None], coming: str | None, expected: bool) -> None:
    """By the words of its arguments: all that the others have in common, and none that they do not have."""
    entries = [made("bash", arguments, 1 if arguments == "same" else 10 + at) for at, arguments in enumerate(row)]
    assert foreseen(made("bash", coming, 1), entries) is expected


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (made("hand_over", flags=BRIEF), True),
        (made("edit", flags=BRIEF), True),
        (made("edit"), False),
        (made("edit", flags=BRIEF | FAILED), False),
        (made("send", flags=BRIEF), False),
        (made("read", flags=BRIEF), False),
    ],
)
def test_what_acts_and_is_told_no_more_than_done(entry: Entry, expected: bool) -> None:
    """By its effect and the length of its answer; who sends the same again says nothing new."""
    assert acts(STANDARD, lone(entry), entry) is expected
