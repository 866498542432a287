"""The plain readings of "third nudges, fifth stops", each under both presets: the table of the README, a test a row."""

import json
import uuid
from collections.abc import Callable, Mapping

import aiohttp
import pytest

from tests.agents import Agent, Turn
from tests.running import running
from tests.upstreams import READ_A, Says, Upstream, looping

Plan = Callable[[int], Says]
"""The model's answer by how many there were before."""
Verdict = tuple[int | None, int | None]
"""The first request that was nudged, and the first whose answer holds no call."""

STANDARD, PLAIN = "standard", "plain"


def search(query: str, **more: object) -> Says:
    return Says(calls=(("search", json.dumps({"q": query, **more})),))


def same(_: int) -> Says:
    return READ_A


def in_turn(*said: Says) -> Plan:
    return lambda number: said[number % len(said)]


def among_new(number: int) -> Says:
    return READ_A if number % 2 == 0 else search(f"idea {number}")


def edits_between(number: int) -> Says:
    if number % 2 == 0:
        return Says(calls=(("pytest", "{}"),))
    return Says(calls=(("edit", json.dumps({"path": "a.py", "text": f"version {number}"})),))


def reordered(number: int) -> Says:
    return Says(calls=(("search", ['{"q": "x", "in": {"a": 1, "b": 2}}', '{"in":{"b":2,"a":1},"q":"x"}'][number % 2]),))


def as_text(number: int) -> Says:
    return Says(calls=(("search", ['{"offset": 10}', '{"offset": "10", "glob": null}'][number % 2]),))


def told(name: str, arguments: str, number: int) -> str:
    """Results by the call alone: the world stands still."""
    return f"result of {name} {sorted(arguments)}"


def changing(name: str, arguments: str, number: int) -> str:
    return f"output {'abcdefghijklmnopqrstuvwxyz'[number]} of {name}"


ROWS: list[tuple[str, Plan, Callable[[str, str, int], str], Verdict, Verdict]] = [
    ("the same call, the same result", same, told, (4, 5), (4, 5)),
    ("the same call, another result each time", same, changing, (11, None), (4, 5)),
    ("the same call between new ones", among_new, changing, (None, None), (6, 9)),
    ("tests between edits that change things", edits_between, changing, (None, None), (6, 9)),
    ("tests between edits, the tests say the same", edits_between, told, (None, None), (6, 9)),
    ("two calls in turn, the same results", in_turn(READ_A, search("x")), told, (7, 10), (6, 9)),
    ("three calls in turn, the same results", in_turn(READ_A, search("x"), search("y")), told, (10, 15), (8, 13)),
    ("keys in another order", reordered, lambda *_: "same", (4, 5), (4, 5)),
    ("a number as text, null for absent", as_text, lambda *_: "same", (4, 5), (6, 9)),
    ("pages of a file", lambda number: search("x", offset=100 * number), told, (None, None), (None, None)),
    ("new arguments every time", lambda number: search(f"q{number}"), changing, (None, None), (None, None)),
]


@pytest.mark.parametrize("preset", [STANDARD, PLAIN])
@pytest.mark.parametrize(("plan", "tool", "standard", "plain"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
async def test_a_history_that_grows(
    upstream: Upstream,
    http: aiohttp.ClientSession,
    plan: Plan,
    tool: Callable[[str, str, int], str],
    standard: Verdict,
    plain: Verdict,
    preset: str,
) -> None:
    """The ordinary client: each request carries all that came before. Naming its session changes nothing."""
    upstream.model = looping(lambda asked: plan(asked.turn))
    async with running(upstream.url, f"policy: {{preset: {preset}}}") as proxy:
        for headers in ({}, {"x-lastcall-session": "s"}):
            upstream.asked.clear()
            turns = await Agent(http, proxy.v1, tool=tool, headers=headers).run(cap=16)

            nudged = next((number for number, request in enumerate(upstream.asked, 1) if request.nudges), None)
            stopped = next((number for number, turn in enumerate(turns, 1) if not turn.calls), None)
            assert (nudged, stopped) == (standard if preset == STANDARD else plain), headers


async def ask_without_history(upstream: Upstream, http: aiohttp.ClientSession, url: str, texts: list[str], **headers: str) -> Verdict:
    """One request after the other that never carry an earlier answer."""
    agent = Agent(http, url, headers={name.replace("_", "-"): value for name, value in headers.items()})
    nudged = stopped = None
    for number, text in enumerate(texts, 1):
        seen = len(upstream.asked)
        agent.messages[1]["content"] = text
        turn = await agent.ask()
        nudged = nudged or (number if upstream.asked[seen].nudges else None)
        stopped = stopped or (None if turn.calls else number)
        if stopped:
            break
    return nudged, stopped


BOTH = pytest.mark.parametrize("preset", [STANDARD, PLAIN])


@BOTH
async def test_five_equal_requests_of_one_session_climb_the_ladder(
    upstream: Upstream, http: aiohttp.ClientSession, either_store: str, preset: str
) -> None:
    """A client that keeps no history, or is frozen: nudge in the fourth request, stop in place of the fifth call."""
    async with running(upstream.url, f"policy: {{preset: {preset}}}", store=either_store) as proxy:
        verdict = await ask_without_history(upstream, http, proxy.v1, ["task"] * 7, x_lastcall_session=f"frozen-{uuid.uuid4()}")

    assert verdict == (4, 5)


async def test_plain_counts_over_a_session_whatever_its_requests_hold(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """Five different tasks in one session, each answered with the same call."""
    async with running(upstream.url, "policy: {preset: plain}") as proxy:
        verdict = await ask_without_history(upstream, http, proxy.v1, [f"task {n}" for n in range(7)], x_lastcall_session="tasks")

    assert verdict == (4, 5)


async def test_standard_leaves_different_tasks_of_one_session_alone(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """Each begins a line of history of its own."""
    async with running(upstream.url) as proxy:
        verdict = await ask_without_history(upstream, http, proxy.v1, [f"task {n}" for n in range(7)], x_lastcall_session="tasks")

    assert verdict == (None, None)


@BOTH
async def test_equal_requests_without_a_session_are_strangers(upstream: Upstream, http: aiohttp.ClientSession, preset: str) -> None:
    """Benchmarks send one prompt many times."""
    async with running(upstream.url, f"policy: {{preset: {preset}}}") as proxy:
        assert await ask_without_history(upstream, http, proxy.v1, ["task"] * 7) == (None, None)


@BOTH
async def test_equal_requests_marked_as_retries_never_count(upstream: Upstream, http: aiohttp.ClientSession, preset: str) -> None:
    """Whoever says it asks again is believed."""
    async with running(upstream.url, f"policy: {{preset: {preset}}}") as proxy:
        verdict = await ask_without_history(upstream, http, proxy.v1, ["task"] * 7, x_lastcall_session="s", x_stainless_retry_count="1")

    assert verdict == (None, None)


def history_of(agent: Agent, repeats: int) -> None:
    for _ in range(repeats):
        call = {"id": f"call_{uuid.uuid4().hex}", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "a.txt"}'}}
        agent.take(_answer(call))


def _answer(call: Mapping[str, object]) -> Turn:
    return Turn(200, {}, b"", {"role": "assistant", "content": None, "tool_calls": [dict(call)]}, None, None)


@BOTH
@pytest.mark.parametrize(("repeats", "nudged", "stopped"), [(2, False, False), (3, True, False), (5, False, True), (9, False, True)])
async def test_a_history_that_arrives_late_is_judged_as_it_stands(
    upstream: Upstream, http: aiohttp.ClientSession, preset: str, repeats: int, nudged: bool, stopped: bool
) -> None:
    """Adopted at the nudge rung it is nudged, at the stop rung stopped."""
    upstream.model = looping(lambda _: search("something else"))
    async with running(upstream.url, f"policy: {{preset: {preset}}}") as proxy:
        agent = Agent(http, proxy.v1)
        history_of(agent, repeats)
        turn = await agent.ask()

    assert turn.action == ("stop" if stopped else "nudge" if nudged else "allow")
    assert (not turn.calls) == stopped
    assert [request.nudges for request in upstream.asked] == [int(nudged)]


async def test_two_branches_with_two_calls_each_are_not_four(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """Lines of history that part count on their own from there."""
    async with running(upstream.url) as proxy:
        trunk = Agent(http, proxy.v1, headers={"x-lastcall-session": "branches"})
        trunk.take(await trunk.ask())
        left, right = (Agent(http, proxy.v1, headers=trunk.headers) for _ in range(2))
        left.messages, right.messages = list(trunk.messages), list(trunk.messages)
        for branch in (left, right):
            turn = await branch.ask()
            assert turn.action == "allow"
            branch.take(turn)
        for branch in (left, right):
            turn = await branch.ask()
            assert (turn.action, bool(turn.calls)) == ("allow", True)
    assert not any(request.nudges for request in upstream.asked)


async def test_a_new_user_turn_starts_afresh(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """Two calls, an answer, a person speaks, two calls: nothing happened."""
    says = [READ_A, READ_A, Says("It holds one line."), READ_A, READ_A, Says("Still one line.")]
    upstream.model = looping(lambda asked: says[asked.turn])
    async with running(upstream.url) as proxy:
        agent = Agent(http, proxy.v1)
        turns = await agent.run()
        agent.say("Please look again, I changed it.")
        turns += await agent.run()

    assert [turn.action for turn in turns] == ["allow"] * 6
    assert not any(request.nudges for request in upstream.asked)


def summarised(agent: Agent) -> None:
    """What a client does that compacts: system text and task stay, a summary takes the place of everything else."""
    agent.messages[2:] = []
    agent.messages[1]["content"] += "\n\nSummary of the work so far: read_file was called on a.txt, which says: one line."


@pytest.mark.parametrize("named", [False, True], ids=["derived", "named"])
async def test_a_summary_that_drops_the_history_does_not_reset(upstream: Upstream, http: aiohttp.ClientSession, named: bool) -> None:
    """The loop goes on after it, and ends within the ladder: one re-read is forgiven, a lost nudge given once more."""
    texts = "The file a.txt was opened and holds one line about the weather in the north"
    upstream.model = looping(lambda asked: Says(f"{texts}, seen {asked.turn} times", READ_A.calls))
    async with running(upstream.url) as proxy:
        agent = Agent(http, proxy.v1, headers={"x-lastcall-session": "compacted"} if named else None)
        for _ in range(4):
            agent.take(await agent.ask())
        assert upstream.asked[-1].nudges == 1
        summarised(agent)
        agent.messages[1]["content"] += f" {texts}, seen 3 times."
        turns = await agent.run()

    assert len(turns) <= 3
    assert turns[-1].text.startswith("[lastcall stop]") or "[lastcall stop]" in turns[-1].text
