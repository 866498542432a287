"""Agents and the sub-agents that share their session, in process, as each client names them: a stop goes down, its reason is told above."""

from typing import Any

import pytest

from proxy.models import Reason
from proxy.policy import OnStop, Policy
from tests.in_process import Proxy, answer, looping, request

CODEX: dict[str, Any] = {"user_agent": "codex_cli_rs/0.171.0", "session_id": "s1"}
CLAUDE: dict[str, Any] = {"user_agent": "claude-cli/2.1.197", "x_claude_code_session_id": "s1"}
# Of each client, what its main line sends, a sub-agent, and one that the sub-agent sent.
CLIENTS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "codex": (
        CODEX | {"thread_id": "t1"},
        CODEX | {"thread_id": "t2", "x_codex_parent_thread_id": "t1", "x_openai_subagent": "collab_spawn"},
        CODEX | {"thread_id": "t3", "x_codex_parent_thread_id": "t2", "x_openai_subagent": "collab_spawn"},
    ),
    "claude code": (
        CLAUDE,
        CLAUDE | {"x_claude_code_agent_id": "a1"},
        CLAUDE | {"x_claude_code_agent_id": "a2", "x_claude_code_parent_agent_id": "a1"},
    ),
    "own headers": (
        {"x_lastcall_session": "s1"},
        {"x_lastcall_session": "s1", "x_lastcall_lane": "one", "x_lastcall_parent": "s1"},
        {"x_lastcall_session": "s1", "x_lastcall_lane": "two", "x_lastcall_parent": "s1"},
    ),
}
TASK = looping(0)
WORK = [{"role": "user", "content": "look into it"}]
DEEPER = [{"role": "user", "content": "look deeper"}]


@pytest.mark.parametrize("on_stop", [OnStop.MESSAGE, OnStop.ERROR])
@pytest.mark.parametrize("client", CLIENTS)
async def test_the_main_lines_stop_stops_its_sub_agents(client: str, on_stop: OnStop) -> None:
    """And theirs, told whose stop it is and why; a person's next message to the main line lets them go on."""
    main, sub, nested = CLIENTS[client]
    proxy = Proxy(answer("ok"), endless=True, policy=Policy(on_stop=on_stop))
    before = [await proxy.ask(request(TASK), **main), await proxy.ask(request(WORK), **sub), await proxy.ask(request(DEEPER), **nested)]
    loop = looping(5)
    stopped = await proxy.ask(request(loop), **main)
    sent = len(proxy.upstream.sent)
    during = [await proxy.ask(request(WORK), **sub), await proxy.ask(request(DEEPER), **nested)]

    assert [one.lastcall["action"] for one in (*before, stopped)] == ["allow", "allow", "allow", "stop"]
    assert [(one.lastcall["action"], one.lastcall["reason"]) for one in during] == [("stop", "repeated_call")] * 2
    assert [one.notice["scope"] for one in during] == ["parent", "parent"]
    assert all("the agent above this sub-agent was stopped (repeated_call)" in one.body.decode() for one in during)
    assert [one.status for one in during] == [400 if on_stop is OnStop.ERROR else 200] * 2
    assert len(proxy.upstream.sent) == sent
    assert {ended.reason for ended in proxy.telemetry.exchanges[-2:]} == {Reason.REPEATED_CALL}

    said: list[dict[str, Any]] = [
        *loop,
        {"role": "assistant", "content": "[lastcall stop]"},
        {"role": "user", "content": "Try another way."},
    ]
    after = [await proxy.ask(request(said), **main), await proxy.ask(request(WORK), **sub), await proxy.ask(request(DEEPER), **nested)]
    assert [one.lastcall["action"] for one in after] == ["allow"] * 3


@pytest.mark.parametrize("client", ["codex", "claude code"])
async def test_each_line_is_told_of_the_stops_below_it(client: str) -> None:
    """The main line of all, a sub-agent of those that it sent, and nobody of a sibling's or of his own."""
    main, sub, nested = CLIENTS[client]
    names = ("thread_id", "x_claude_code_agent_id")
    sibling = {name: "t9" if name in names else value for name, value in sub.items()}
    proxy = Proxy(answer("ok"), endless=True, policy=Policy(on_stop=OnStop.MESSAGE))
    for headers, messages in ((main, TASK), (sub, WORK), (sibling, WORK)):
        await proxy.ask(request(messages), **headers)
    assert (await proxy.ask(request(looping(5, task="look deeper")), **nested)).lastcall["action"] == "stop"

    told = [
        (await proxy.ask(request(messages), **headers)).lastcall.get("child-stopped")
        for headers, messages in ((main, TASK), (sub, WORK), (sibling, WORK), (nested, DEEPER))
    ]
    assert told == ["repeated_call", "repeated_call", None, None]


async def test_a_branch_that_nobody_sent_goes_on() -> None:
    """A lane that is merely named, a second thread, another history of the session."""
    proxy = Proxy(answer("ok"), endless=True, policy=Policy(on_stop=OnStop.MESSAGE))
    main = CODEX | {"thread_id": "t1"}
    beside = [main | {"x_lastcall_lane": "mine"}, CODEX | {"thread_id": "t2"}, {"x_lastcall_session": "s1"}]
    for headers in beside:
        await proxy.ask(request(WORK), **headers)
    await proxy.ask(request(looping(5)), **main)
    assert [(await proxy.ask(request(WORK), **headers)).lastcall["action"] for headers in beside] == ["allow"] * 3


async def test_a_session_goes_on_with_its_parent_where_a_person_went_back() -> None:
    """Before the loop, and says something else there: the line that stands stopped is the parent's no more."""
    proxy = Proxy(answer("ok"), endless=True, policy=Policy(on_stop=OnStop.MESSAGE))
    parent: dict[str, Any] = {"x_lastcall_session": "p"}
    child: dict[str, Any] = {"x_lastcall_session": "c", "x_lastcall_parent": "p"}
    before: list[dict[str, Any]] = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ok"}]
    await proxy.ask(request([*before, {"role": "user", "content": "list it"}]), **parent)
    await proxy.ask(request([*before, *looping(5)]), **parent)
    during = await proxy.ask(request(WORK), **child)
    await proxy.ask(request([*before, {"role": "user", "content": "do something else"}]), **parent)
    after = await proxy.ask(request(WORK), **child)

    assert [one.lastcall["action"] for one in (during, after)] == ["stop", "allow"]
