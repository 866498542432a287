"""Generated work is never stopped, generated collapses always are, and in time. The rates are printed."""

import sys
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.config import load
from proxy.policy import policy_of
from proxy.replay.recording import Recording
from proxy.replay.walk import Act, Walk, prints_for, walk
from tests.generated import COLLAPSES, Worker, collapse, recording

pytestmark = pytest.mark.no_cover  # thousands of calls through the whole engine, which other tests cover
POLICY = policy_of(load("", {}).policy)
PRINTS = prints_for(POLICY)


def led(run: Recording) -> Walk:
    return walk(run, POLICY, PRINTS)


def stops(made: Walk) -> list[str]:
    return [f"{mark.reason} of {mark.tool} at call {mark.call}" for mark in made.marks if mark.act is not Act.NUDGE]


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 1 << 32), st.integers(1, 100), st.booleans())
def test_work_is_not_stopped(seed: int, calls: int, persons: bool) -> None:
    """Any mix of episodes, with and without a person who speaks now and then."""
    random = Random(seed)
    messages = Worker(random).work(calls)
    texts = random.sample(range(1, len(messages)), len(messages) // 20) if persons and len(messages) > 20 else ()
    assert stops(led(recording("work", messages, texts=texts))) == []


@pytest.mark.parametrize("episode", [method.__name__ for method in Worker(Random(0)).episodes])
def test_one_kind_of_work_for_a_long_time(episode: str) -> None:
    """Nothing else in between that could start a count afresh."""
    for seed in range(2):
        worker = Worker(Random(seed))
        messages = [message for _ in range(8) for message in getattr(worker, episode)()]
        assert stops(led(recording(episode, messages))) == []


def test_a_thousand_calls_of_work() -> None:
    """One run from beginning to end."""
    made = led(recording("long", Worker(Random(1)).work(1_000)))
    assert made.calls >= 1_000
    assert stops(made) == []


@pytest.mark.parametrize("kind", COLLAPSES)
@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 1 << 32), after=st.sampled_from([0, 30]))
def test_a_collapse_is_nudged_and_stopped_in_time(kind: str, seed: int, after: int) -> None:
    """Whatever drifts, and whether or not work came before it."""
    run = collapse(kind, Random(seed), after=after)
    made = led(run)
    begun = run.calls - 40
    acts = {mark.act: mark.call - begun for mark in reversed(made.marks) if mark.call > begun}
    assert acts.get(Act.STOP, 99) <= COLLAPSES[kind][1]
    assert acts.get(Act.NUDGE, 99) < acts[Act.STOP]


def test_the_rates(capsys: pytest.CaptureFixture[str]) -> None:
    """What an operator would see of it: told rarely, never stopped; told and stopped."""
    works = [led(recording(f"{seed}", Worker(Random(1_000 + seed)).work(120))) for seed in range(20)]
    stuck = [led(collapse(kind, Random(seed))) for kind in COLLAPSES for seed in range(2)]
    nudged, stopped = (sum(bool(made.of(act)) for made in works) for act in (Act.NUDGE, Act.STOP))
    caught = sum(bool(made.of(Act.STOP)) for made in stuck)
    told = (
        f"generated work: {len(works)} runs, {sum(made.calls for made in works)} calls, {nudged} nudged, {stopped} stopped\n"
        f"generated collapses: {len(stuck)} runs, {caught} stopped\n"
    )
    with capsys.disabled():
        sys.stderr.write(f"\n{told}")
    assert (stopped, caught) == (0, len(stuck)), told
