"""Counting and the detectors that read it, on whatever trail a model may leave."""

from collections import Counter
from itertools import count
from random import Random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.counting import is_bookkeeping, judged, tally
from proxy.detectors import DETECTORS
from proxy.fingerprint import UNSEEN
from proxy.models import Finding, Reason
from proxy.policy import Counting, Policy
from proxy.trail import Entry, Step, Trail
from tests.driver import Agent, House, Reply
from tests.transcripts import called, together, user

STANDARD = Policy()
NAMES = ("read", "bash", "edit", "update_plan", "submit")

calls = st.builds(
    Entry,
    st.integers(1, 6),
    st.just("bash"),
    st.sampled_from([UNSEEN, 11, 12, 13]),
    st.booleans(),
    st.sampled_from([False, False, False, True]),
).map(lambda entry: Entry(entry.call, NAMES[entry.call % len(NAMES)], entry.result, entry.flags))
steps = st.builds(Step, st.lists(calls, max_size=4).map(tuple), st.sampled_from([False, False, False, False, True]))
trails = st.builds(
    Trail,
    st.lists(steps, max_size=25).map(tuple),
    st.dictionaries(st.integers(1, 6), st.integers(0, 25), max_size=2),
    st.dictionaries(st.integers(1, 6), st.sampled_from([11, 12]), max_size=2),
)
policies = st.sampled_from([Policy(counting=counting) for counting in Counting])


def found(trail: Trail, policy: Policy) -> list[Finding]:
    now = tally(trail, policy)
    return [finding for detector in DETECTORS for finding in detector.seen(trail, now, policy)]


def coming(trail: Trail, message: tuple[Entry, ...], policy: Policy) -> list[Finding]:
    now = tally(trail, policy)
    return [finding for detector in DETECTORS for finding in detector.coming(trail, now, message, policy) if finding.stops]


@given(trails, policies)
def test_no_detector_finds_anything_below_its_rung(trail: Trail, policy: Policy) -> None:
    """And never more repeats than there were messages, or calls in one of them."""
    for finding in found(trail, policy):
        assert finding.nudges or finding.stops
        most = max(sum(1 for step in trail.steps if any(entry.call in finding.calls for entry in step.calls)), len(trail.steps[-1].calls))
        assert finding.count <= most


@given(trails)
def test_no_progress_never_counts_more_than_there_were(trail: Trail) -> None:
    """Cumulative is its upper bound, and so is it of consecutive counting."""
    all_of_them = tally(trail, Policy(counting=Counting.CUMULATIVE)).counts
    for counting in (Counting.NO_PROGRESS, Counting.CONSECUTIVE):
        assert all(counted <= all_of_them[call] for call, counted in tally(trail, Policy(counting=counting)).counts.items())


def news(trail: Trail, policy: Policy) -> list[bool]:
    """For each message whether it brought any: a call, or a result of one, that was not there before."""
    told: list[bool] = []
    known: set[tuple[int, int]] = set()
    for step in trail.steps:
        fresh = False
        for entry in step.calls:
            new = (entry.call, UNSEEN) not in known or (entry.result != UNSEEN and (entry.call, entry.result) not in known)
            fresh = fresh or (new and not entry.void and not is_bookkeeping(policy, entry.name))
            known |= {(entry.call, UNSEEN), (entry.call, entry.result)}
        told.append(fresh)
    return told


@given(trails)
def test_a_count_is_the_number_of_messages_with_the_call_since_the_last_news(trail: Trail) -> None:
    """The definition, read literally, where nothing was nudged or summarised away."""
    bare = Trail(tuple(Step(step.calls) for step in trail.steps))
    told = news(bare, STANDARD)
    since = bare.steps[len(told) - 1 - told[::-1].index(True) :] if True in told else bare.steps
    expected = Counter(call for step in since for call in {entry.call for entry in step.calls if judged(STANDARD, entry)})
    assert tally(bare, STANDARD).counts == expected


@given(trails, policies, st.randoms(use_true_random=False))
def test_the_order_inside_a_message_does_not_matter(trail: Trail, policy: Policy, random: Random) -> None:
    """The calls happened at once."""
    once = [tuple({entry.call: entry for entry in step.calls}.values()) for step in trail.steps]
    flags = [step.after_compaction for step in trail.steps]
    one = msgspec.structs.replace(trail, steps=tuple(map(Step, once, flags)))
    other = msgspec.structs.replace(trail, steps=tuple(Step(tuple(random.sample(c, len(c))), f) for c, f in zip(once, flags, strict=True)))
    assert tally(one, policy) == tally(other, policy)
    assert {(f.reason, f.count, f.calls) for f in found(one, policy)} == {(f.reason, f.count, f.calls) for f in found(other, policy)}


@given(trails, policies, st.permutations(range(1, 7)))
def test_renaming_fingerprints_does_not_matter(trail: Trail, policy: Policy, names: list[int]) -> None:
    """They are names and nothing else: no hash is smaller or luckier than another."""

    def renamed(call: int) -> int:
        return names[call - 1] * 1_000_003

    def entry(old: Entry) -> Entry:
        return msgspec.structs.replace(old, call=renamed(old.call), result=old.result * 7)

    other = Trail(
        tuple(Step(tuple(map(entry, step.calls)), step.after_compaction) for step in trail.steps),
        {renamed(call): at for call, at in trail.nudged.items()},
        {renamed(call): result * 7 for call, result in trail.relapsed.items()},
    )
    assert tally(other, policy).counts == {renamed(call): counted for call, counted in tally(trail, policy).counts.items()}
    before = sorted((f.reason, f.tool, f.count, sorted(map(renamed, f.calls))) for f in found(trail, policy))
    assert before == sorted((f.reason, f.tool, f.count, sorted(f.calls)) for f in found(other, policy))


@given(trails, st.lists(calls, min_size=1, max_size=4), policies)
def test_what_is_stopped_as_it_comes_would_have_been_found_after_it(trail: Trail, message: list[Entry], policy: Policy) -> None:
    """And a message is only ever stopped where the stream was armed for it, or ran away."""
    made = tuple(msgspec.structs.replace(entry, result=UNSEEN, flags=0) for entry in message)
    stopped = coming(trail, made, policy)
    now = tally(trail, policy)
    after = tally(msgspec.structs.replace(trail, steps=(*trail.steps, Step(made))), policy)
    for finding in stopped:
        assert any(detector.armed(trail, now, policy) for detector in DETECTORS)
        if finding.reason is Reason.REPEATED_CALL:
            assert all(after.counts[call] == finding.count for call in finding.calls)


# ---- legitimate work


def work(kinds: list[str]) -> list[tuple[Entry, ...]]:
    """Messages of an agent that makes progress: something new between any two equal calls, or a new result each time."""
    fresh = count(1_000)

    def new(name: str, result: int | None = None) -> Entry:
        number = next(fresh)
        return Entry(number, name, number if result is None else result)

    messages: list[tuple[Entry, ...]] = []
    for kind in kinds:
        match kind:
            case "test after an edit":  # it fails in the same way each time
                messages += [(new("edit"),), (Entry(1, "bash", 11),)]
            case "read again after an edit":
                messages += [(new("edit", 12),), (Entry(2, "read", 13),)]
            case "edit, test and read":
                messages += [(new("edit", 12),), (Entry(1, "bash", 11), Entry(2, "read", 13))]
            case "page on":
                messages += [(new("read"),) for _ in range(3)]
            case "poll":
                messages += [(Entry(3, "bash", next(fresh)),) for _ in range(4)] + [(new("read"),)]
            case "batch":
                messages.append(tuple(new("edit", 12) for _ in range(20)))
            case "the same beside something new":
                messages.append((Entry(4, "read", 15), new("bash")))
    return messages


KINDS = (
    "test after an edit",
    "read again after an edit",
    "edit, test and read",
    "page on",
    "poll",
    "batch",
    "the same beside something new",
)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(KINDS), min_size=1, max_size=100))
def test_work_that_makes_progress_is_neither_nudged_nor_stopped(kinds: list[str]) -> None:
    """Up to three hundred messages of edits, tests, pages, polls and batches."""
    steps: list[Step] = []
    for message in work(kinds)[:300]:
        trail = Trail(tuple(steps))
        assert found(trail, STANDARD) == []
        assert coming(trail, tuple(msgspec.structs.replace(entry, result=UNSEEN) for entry in message), STANDARD) == []
        steps.append(Step(message))
    assert found(Trail(tuple(steps)), STANDARD) == []


@settings(max_examples=10, deadline=None)
@given(st.lists(st.sampled_from(KINDS), min_size=5, max_size=20), st.integers(0, 4))
def test_a_nudged_gate_goes_on_as_long_as_there_is_news(kinds: list[str], extra: int) -> None:
    """Nudged at the third test without an edit, it may run after each later edit, and is stopped only by a fifth without one."""
    begun = [Step((Entry(1, "bash", 11),)) for _ in range(3)]
    steps = [*begun, *map(Step, work(kinds))]
    for end in range(len(begun), len(steps)):
        trail = Trail(tuple(steps[:end]), {1: 3})
        unseen = tuple(msgspec.structs.replace(entry, result=UNSEEN) for entry in steps[end].calls)
        assert coming(trail, unseen, STANDARD) == []
    again = Trail((*steps, *begun[:extra]), {1: 3})
    assert any(f.stops for f in found(again, STANDARD)) is (extra > _left(steps))


def _left(steps: list[Step]) -> int:
    """How many tests without news a nudged test has left before its fifth."""
    return 4 - tally(Trail(tuple(steps), {1: 3}), STANDARD).counts[1]


def test_three_hundred_calls_of_work_through_the_whole_engine() -> None:
    """Record, bounds and all: edit and test with the same failure, a batch now and then."""
    replies: list[Reply] = []
    for number in range(100):
        replies.append(together(called("edit", {"n": number}, "ok"), called("edit", {"m": number}, "ok")))
        replies.append(called("bash", {"command": "pytest"}, "1 failed"))
    assert Agent(House(), user("go")).play(replies) == ["ok"] * 200
