"""Answers with nothing in them."""

import pytest

from proxy.detectors.empty_output import EmptyOutput
from tests.driver import House
from tests.texts import EMPTY, decisions, texts
from tests.transcripts import called, said, user


def test_empty_answers_at_the_end_are_counted() -> None:
    """Back to one that is not."""
    assert EmptyOutput().count([EMPTY]) == 1
    assert EmptyOutput().count([EMPTY, *texts("a"), EMPTY, EMPTY]) == 2
    assert EmptyOutput().count(texts("a")) == 0


def test_the_second_is_nudged_and_the_fourth_stopped() -> None:
    """White space is nothing."""
    assert decisions(["", " \n", "", ""]) == ["ok", "ok", "nudge", "stop"]


def test_an_answer_or_a_call_in_between_ends_it() -> None:
    """One empty answer now and then is no loop."""
    assert decisions(["", "Hm.", "", "Well.", "", called("bash"), "", called("bash", {"a": 1}), ""]) == ["ok"] * 9


@pytest.mark.parametrize(("named", "expected"), [(True, ["ok", "ok", "nudge", "stop"]), (False, ["ok"] * 4)])
def test_a_client_that_drops_empty_answers_climbs_too(named: bool, expected: list[str]) -> None:
    """If it names its session: else it could be several that ask the same."""
    house = House(named=named)
    assert [house.ask([user("do it")], "").decision for _ in range(4)] == expected


def test_an_empty_answer_that_did_not_arrive_counts_for_nothing() -> None:
    """Nor does a marked retry."""
    house = House()
    assert [house.ask([user("do it")], "", full=False).decision for _ in range(4)] == ["ok"] * 4
    assert [house.ask([user("do it")], "", retry=True).decision for _ in range(4)] == ["ok"] * 4


def test_what_was_dropped_before_an_answer_is_no_loop() -> None:
    """The history has grown since."""
    house = House()
    assert [house.ask([user("do it")], text).decision for text in ("", "Hm.")] == ["ok", "ok"]
    assert house.ask([user("do it"), said("Hm."), user("continue")], "").decision == "ok"
