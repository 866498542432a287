"""A lane's steps, joined anew and taken over from the request before; what they say is tried in tests/unit/test_lanes.py."""

import json
import random
from collections.abc import Iterator

import msgspec
import pytest

from proxy.counting import tally
from proxy.dialects import DIALECTS
from proxy.growing import Readings
from proxy.policy import Policy
from proxy.state import MAX_CALLS
from tests.recorded import Recorded, shown
from tests.transcripts import Turn, body, called, said, together, user

CHAT = DIALECTS["/chat/completions"]
LONG = "You are careful. " * 300  # a body that is worth finding again
GO = user("go")


class Twice:
    """One session asked twice: by requests that go on from the one before, and by the same ones read alone."""

    def __init__(self) -> None:
        self._readings = Readings()
        self.grown, self.alone = Recorded(), Recorded(warm=False)

    def ask(self, *turns: Turn, caller: str = "me", marked: int = 0) -> None:
        raw = _marked(body(*turns, system=LONG), marked)
        for session, asked in ((self.grown, self._readings.read(CHAT, raw, caller)), (self.alone, CHAT.parse(raw))):
            session.take(asked, lane=0, named=True, retry=False, whole=False, busy=())
        trail = self.grown.place.trail
        assert trail == self.alone.place.trail
        assert tally(trail, Policy()) == tally(msgspec.structs.replace(trail, once=False), Policy())
        assert self.grown.data == self.alone.data


def _marked(raw: bytes, newest: int) -> bytes:
    """A body whose newest messages carry the marker that clients move on with each request."""
    asked = json.loads(raw)
    for message in asked["messages"][-newest:] if newest else ():
        message["cache_control"] = {"type": "ephemeral"}
    return json.dumps(asked).encode()


def life(dice: random.Random, turns: int) -> Iterator[Turn]:
    """What an agent does: now and then the same again, with the same result, one that only looks new, or a new one."""
    for number in range(turns):
        results = ["done", f"done in {dice.randrange(1, 9)}.5s", f"line {dice.randrange(5)}", "x" * dice.randrange(5)]
        again = called(dice.choice("abc"), {"of": dice.randrange(12)}, dice.choice(results))
        match dice.randrange(10):
            case 0:
                yield together(again, called("d", {"of": number}, "ok"))
            case 1:
                yield said("hm")
            case 2 | 3 | 4:
                yield again
            case _:
                yield called("e", {"of": number}, dice.choice(results))


@pytest.mark.parametrize("seed", range(3))
def test_steps_that_are_taken_over_are_those_that_would_be_made(seed: int) -> None:
    """At every length, far beyond what a record keeps, and on the way back: a history that was sent before, or goes on elsewhere."""
    dice, session = random.Random(seed), Twice()
    turns = [GO, *life(dice, MAX_CALLS + 60)]

    for end in range(1, len(turns), 3):
        session.ask(*turns[: end + 1])
        if dice.randrange(20) == 0:
            session.ask(*turns[: end + 1])
            session.ask(*turns[:end])
            session.ask(*turns[:end], called("f", {"of": end}, "ok"))


@pytest.mark.parametrize("marked", [1, 2, 3])
def test_steps_of_messages_that_come_back_without_a_marker_are_joined_again(marked: int) -> None:
    """Of a client that marks the newest messages only those before them are taken over, and the steps are those that would be made."""
    dice, session = random.Random(1), Twice()
    turns = [GO, *life(dice, MAX_CALLS + 30)]

    for end in range(1, len(turns), 2):
        session.ask(*turns[: end + 1], marked=marked)
        if dice.randrange(10) == 0:
            session.ask(*turns[:end], marked=marked)
            session.ask(*turns[:end], called("f", {"of": end}, "ok"), marked=marked)


def test_a_trail_says_when_it_has_no_call_twice() -> None:
    """As long as every call of the history is the first of its kind; one that a history no longer shows at the end is forgotten."""
    session = Twice()
    turns: list[Turn] = [GO, *[called("b", {"of": number}, "ok") for number in range(4)]]
    again = called("b", {"of": 1}, "ok")
    for history, once in (
        ([*turns], True),
        ([*turns, again], False),
        ([*turns, again, again], False),
        ([*turns, again, called("c", {}, "ok")], False),
        ([*turns, called("c", {}, "ok"), called("d", {}, "ok")], True),
    ):
        session.ask(*history, marked=2)
        assert session.grown.place.trail.once is once


def test_what_another_key_of_the_team_found_out_is_seen() -> None:
    """Each key's requests go on from its own, while both write into one record: neither overlooks what came with the other."""
    dice, session = random.Random(4), Twice()
    turns = [GO, *life(dice, 60)]

    for end in range(1, len(turns)):
        session.ask(*turns[: end + 1], caller=dice.choice(["mine", "yours"]))


def test_an_answer_is_compared_with_one_that_arrived_late() -> None:
    """What that one said was found out when its call was made again, and came to something else."""
    session, late = Twice(), called("look", {"of": 1}, None)
    session.ask(GO, late, called("look", {"of": 2}, "b"))
    turns: list[Turn] = [GO, called("look", {"of": 1}, "took 1.2s a"), called("look", {"of": 2}, "b"), called("look", {"of": 1}, "other")]
    session.ask(*turns)
    session.ask(*turns, called("look", {"of": 3}, "took 3.4s a"))
    assert shown(session.grown.place) == ["look1", "look2", "look3", "look1"]


def test_calls_that_the_record_has_dropped_are_compared_when_they_come_back() -> None:
    """The same call with the same result at both ends of a long run is no news, whatever the record kept of it."""
    session = Twice()
    turns: list[Turn] = [GO, called("a", {}, "took 1.5s"), *[called("b", {"of": number}, "ok") for number in range(MAX_CALLS + 10)]]
    session.ask(*turns)
    session.ask(*turns, called("a", {}, "took 2.5s"))

    steps = session.grown.place.trail.steps
    assert steps[0].calls[0].result == steps[-1].calls[0].result
    assert shown(session.grown.place)[1] == "b?"
