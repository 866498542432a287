"""What agents of today do at work is never stopped, however much it looks like a loop; what is one is told, and stopped in time."""

import sys
from random import Random

import pytest

from proxy.config import load
from proxy.policy import policy_of
from proxy.replay.walk import Act, Walk, prints_for, walk
from tests import patterns, work
from tests.patterns import recorded
from tests.work import stuck
from tests.work.steps import Pattern

WORK = {**patterns.WORK, **work.WORK}
STUCK = {**patterns.STUCK, **stuck.STUCK}

POLICY = policy_of(load("", {}).policy)
PRINTS = prints_for(POLICY)


def led(name: str, pattern: Pattern, seed: int = 1) -> Walk:
    return walk(recorded(name, pattern, Random(seed)), POLICY, PRINTS)


@pytest.mark.parametrize("name", WORK)
def test_work_is_not_stopped(name: str) -> None:
    """For as long as it lasts in practice."""
    made = led(name, WORK[name])
    assert [f"{mark.reason} of {mark.tool} at call {mark.call}" for mark in made.marks if mark.act is not Act.NUDGE] == []


@pytest.mark.parametrize("name", STUCK)
def test_a_collapse_is_told_and_stopped_in_time(name: str) -> None:
    """Whatever drifts, whatever stands in between."""
    pattern, limit = STUCK[name]
    made = led(name, pattern)
    assert made.of(Act.STOP)[0].call <= limit
    assert made.of(Act.NUDGE)[0].call < made.of(Act.STOP)[0].call


def test_the_rates(capsys: pytest.CaptureFixture[str]) -> None:
    """What an operator would see of it."""
    works = [led(name, pattern, seed) for name, pattern in WORK.items() for seed in (2, 3)]
    stuck = [led(name, pattern, seed) for name, (pattern, _) in STUCK.items() for seed in (2, 3)]
    nudged, stopped = (sum(bool(made.of(act)) for made in works) for act in (Act.NUDGE, Act.STOP))
    caught = sum(bool(made.of(Act.STOP)) for made in stuck)
    told = f"patterns of work: {len(works)}, {nudged} nudged, {stopped} stopped; of collapses: {len(stuck)}, {caught} stopped"
    with capsys.disabled():
        sys.stderr.write(f"\n{told}\n")
    assert (stopped, caught) == (0, len(stuck)), told
