"""What an attacker or a broken model sends neither slows the detectors beyond what it weighs nor gets past them.

Cost is counted in calls of functions, Python's and C's, so that it is the same on every machine.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from proxy.config import load
from proxy.fingerprint import Fingerprints
from proxy.policy import policy_of
from proxy.trail import head_of
from tests.driver import Agent, House, Reply
from tests.loops import OFFERED, bash, edit
from tests.transcripts import called, request, system, together, user

POLICY = policy_of(load("", {}).policy)
DIGITS = "9" * 1_000_000


def agent() -> Agent:
    return Agent(House(POLICY), user("go"), tools=OFFERED)


def cost(replies: list[Reply]) -> int:
    """Function calls of the exchange after these replies."""
    asking = agent()
    for reply in replies:
        asking.step(reply)
    seen = 0

    def count(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal seen
        seen += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        asking.step("done")
    finally:
        sys.setprofile(None)
    return seen


WIDE: dict[str, Callable[[int, int], Reply]] = {
    "different calls": lambda size, _: together(*[called("read_file", {"path": f"{n}"}, f"text {n}") for n in range(size)]),
    "new calls each time": lambda size, at: together(*[called("read_file", {"path": f"{at}.{n}"}, f"text {n}") for n in range(size)]),
    "failures": lambda size, _: together(*[called("bash", {"command": f"x{n}"}, f"Error: failed to do {n}") for n in range(size)]),
    "one failure": lambda size, at: together(*[called("bash", {"command": f"x{n} {at}"}, "Error: failed to do it") for n in range(size)]),
    "one output": lambda size, at: together(*[called("search", {"query": f"{at} {n}"}, "No results found") for n in range(size)]),
    "messages": lambda size, at: together(*[called("send_message", {"to": "a", "text": f"{at} {n}"}, "sent") for n in range(size)]),
    "tools that are not there": lambda size, at: together(*[called(f"no_{n}", {"at": at}, "Error: no such tool") for n in range(size)]),
    "waiting": lambda size, _: together(*[called("job_status", {"id": n}, "running") for n in range(size)]),
    "one call": lambda size, _: together(*[called("read_file", {}, "text")] * size),
}


@pytest.mark.parametrize("kind", WIDE)
def test_twice_as_many_calls_at_once_cost_twice_as_much(kind: str) -> None:
    """A message of 10,000 parallel calls is read in a time that grows with it, not with its square."""
    small, large = (cost([WIDE[kind](size, at) for at in range(4)]) for size in (150, 300))
    assert large < 2.6 * small


@pytest.mark.parametrize("kind", ["failures", "one failure", "one output", "waiting"])
def test_twice_as_many_messages_cost_twice_as_much(kind: str) -> None:
    """Each of one call."""
    small, large = (cost([WIDE[kind](1, at) for at in range(size)]) for size in (60, 120))
    assert large < 2.6 * small


def test_a_long_session_is_not_looked_at_call_by_call_again() -> None:
    """Edit, test, edit, test: of what a call of long ago costs, 70 are this agent's, which sends and reads its history anew each time.

    Both sessions are longer than what a record keeps.
    """
    small, large = (cost([edit(at) if at % 2 else bash("pytest -q", "1 failed") for at in range(size)]) for size in (150, 300))
    assert (large - small) / 150 < 90


@pytest.mark.parametrize("kind", ["different calls", "failures", "tools that are not there", "one call"])
def test_a_wide_loop_is_a_loop(kind: str) -> None:
    """More calls at once than are looked at closely hide nothing."""
    decisions = agent().play([*[WIDE[kind](40, at) for at in range(12)], "done"])
    assert decisions[-1] == "stop"
    assert len(decisions) <= 10


@pytest.mark.parametrize(
    ("arguments", "result"),
    [
        (f'{{"n": {DIGITS}}}', "ok"),
        ('{"n": 1}', DIGITS),
        ('{"command": ' + "[" * 100_000 + "]" * 100_000 + "}", "Error: failed"),
        ("{}", '{"status":' * 100_000),
        ("{}", "Error " * 100_000),
        ("{}", "no new " + "a " * 100_000),
        ('{"command": "' + "x" * 1_000_000 + '"}', "Error: failed"),
        ('{"e\u0301": 1, "\u00e9": 2}', "fine"),
        ('{"command": "' + "(" * 50_000 + '"}', "\x1b[" * 50_000),
    ],
    ids=["digits", "digits in a result", "depth", "depth in a result", "errors", "words", "a long word", "look-alike keys", "brackets"],
)
def test_a_hostile_call_again_and_again(arguments: str, result: str) -> None:
    """Counted like any other: told at the third, stopped at the fifth."""
    decisions = agent().play([called("bash", arguments, result)] * 5)
    assert decisions[-1] == "stop"
    assert "nudge" in decisions[:4]


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("send_message", {"to": "a", "text": "\uff21" * 2_048}, "sent"),
        ("read_file", {"path": "a" * 2_048}, "one\ntwo\nthree\nfour"),
        ("bash", {"command": "x" * 4_000}, "Error: failed to do it"),
    ],
)
def test_long_words_in_many_calls_take_no_time(name: str, arguments: dict[str, Any], result: str) -> None:
    """No pattern begins anew at each of their letters."""
    asking = agent()
    started = time.process_time()
    for at in range(12):
        asking.step(together(*[called(name, arguments | {"at": f"{at}.{n}"}, result) for n in range(40)]))
    assert time.process_time() - started < 5  # a second or so; what begins anew takes minutes


@pytest.mark.parametrize("text", ["{} at 12:00:0{}", "Error:\n{} {}"], ids=["one call", "failures"])
def test_long_results_in_one_message_are_normalised_as_far_as_it_takes_no_time(text: str) -> None:
    """Beyond that they are known by their bytes; a later loop is seen all the same."""
    digits = "1:" * 16_000
    calls = [called("bash", {"command": "ls"}, text.format(digits, n)) for n in range(500)]
    asking = Agent(House(POLICY), user("go"), together(*calls), tools=OFFERED)
    started = time.process_time()
    asking.step("done")
    assert time.process_time() - started < 5  # a second or two; all of it would take ten

    decisions = agent().play([called("bash", {"command": "ls"}, f"{digits} at 12:00:0{n}") for n in range(5)])
    assert decisions[-1] == "stop"


def test_long_system_messages_are_normalised_as_far_as_it_takes_no_time() -> None:
    """Each is bounded, and so are all together."""
    prints = Fingerprints(b"x" * 32, loose=True)
    asked = request(*[system("1:" * 16_000 + str(n)) for n in range(400)], user("go"))
    started = time.process_time()
    head_of(asked, prints)
    assert time.process_time() - started < 5


def test_markup_in_a_long_history_is_looked_for_in_its_beginning() -> None:
    """Answers of a history are scanned again with each request."""
    asking = Agent(House(POLICY), user("go"), tools=())
    started = time.process_time()
    asking.play(["```" * 700_000, "done"])
    assert time.process_time() - started < 5  # all of it would take ten


def test_keys_that_look_alike_are_different_keys() -> None:
    """Unicode is compared as it is written: composed, decomposed and look-alike letters make other calls, and none hides another."""
    prints = Fingerprints(b"x" * 32, loose=True)
    spellings = ['{"\u00e9": 1}', '{"e\u0301": 1}', '{"\u00e9": 1, "e\u0301": 1}', '{"\u0435": 1}', '{"e": 1}', '{"\uff45": 1}']
    assert len({prints.call("read_file", text) for text in spellings}) == len(spellings)
    assert len({prints.call(name, "{}") for name in ("read_file", "r\u0435ad_file", "read_f\u0131le")}) == 3


def test_digits_that_differ_at_the_end_are_different_numbers() -> None:
    """However many there are."""
    prints = Fingerprints(b"x" * 32, loose=True)
    assert prints.call("a", f'{{"n": {DIGITS}1}}') != prints.call("a", f'{{"n": {DIGITS}2}}')
