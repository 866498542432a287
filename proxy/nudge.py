"""The words Lastcall adds for a model or a person: nudges, wrap-up instructions, stop lines. Every one begins with its mark.

A nudge is said again in each later request, so its text must follow from what is still at hand then: the nudge as recorded and the
result it speaks of, read from the request's own history.
"""

import re
from collections.abc import Iterable

from proxy.models import Finding, Reason, Request, text_of
from proxy.policy import Policy
from proxy.state import Nudge
from proxy.trail import History

NUDGE_MARK = "[lastcall]"
STOP_MARK = "[lastcall stop]"
_QUOTED = 160  # characters of a result's first line

_RETRIED = re.compile(r"429|50[0-4]|529")  # numbers in which some clients read a status to retry (reference: pi, OpenClaw)


def nudge_text(nudge: Nudge, request: Request, history: History, policy: Policy) -> str:
    """The nudge in full. Names the tool, how often and what came back (its first line, cut); never the arguments."""
    result = _result_line(nudge, history)
    finish = finish_tool(request, policy)
    if policy.nudge.text is not None:
        values = {"tool": nudge.tool, "count": str(nudge.count), "result": result, "finish_tool": finish or "", "reason": str(nudge.reason)}
        return f"{NUDGE_MARK} " + policy.nudge.text.format_map(values)  # `config` allows these names alone, without attributes
    answer = f"call {finish} with what you have" if finish else "give your answer with what you have"
    came_back = f' The last result began: "{result}".' if result else ""
    return (
        f"{NUDGE_MARK} {_observation(nudge)}{came_back} What these results say is likely all there is; the same call will say it again. "
        f"It is time to wrap up: take one different step if something specific is still missing, otherwise {answer}. "
        "If the task cannot be done, saying so and why is a good answer."
    )


def _observation(nudge: Nudge) -> str:
    match nudge.reason:
        case Reason.CYCLE:
            calls = f"The same {len(nudge.calls)} tool calls, {nudge.tool} among them,"
            return f"{calls} have now gone round {nudge.count} times without anything new."
        case Reason.PARALLEL_REPEAT:
            return f"One message held {nudge.count} identical calls of {nudge.tool}; each of them returns the same."
        case _:
            return f"{nudge.tool} has now been called {nudge.count} times in the same way and nothing new came back."


def _result_line(nudge: Nudge, history: History) -> str:
    """First line of the looped call's latest result up to the nudge's place."""
    calls = frozenset(nudge.calls)
    for message in reversed(history.messages[: nudge.message + 1]):  # none where it stands at a user's text: there was no result
        for call in reversed(message.calls):
            if call.fingerprint in calls and call.content:
                first = text_of(call.content).strip().split("\n", 1)[0].strip()
                return first if len(first) <= _QUOTED else first[:_QUOTED] + "…"
    return ""


def finish_tool(request: Request, policy: Policy) -> str | None:
    """The first of the policy's finish tools that the request offers."""
    return next((tool for tool in policy.finish_tools if tool in request.tools), None)


def why(finding: Finding) -> str:
    """What happened, for a stop line: one clause, no digits that a client could take for a status."""
    times = "many times" if _RETRIED.search(str(finding.count)) else f"{finding.count} times"
    match finding.reason:
        case Reason.CYCLE:
            return f"the same {len(finding.calls)} tool calls went round {times} without anything new"
        case Reason.PARALLEL_REPEAT:
            return f"one message repeated the same call of {finding.tool} {times}"
        case _ if not finding.calls:
            return f"{finding.tool} of this session were stopped {times}"
        case _:
            return f"{finding.tool} was asked for {times} in the same way without anything new"


def why_budget(reason: Reason, limit: float) -> str:
    """The same for a budget. Says "model usage" for tokens: some clients compact and go on when an error speaks of tokens."""
    amount = f"{limit:,.3f}".rstrip("0").rstrip(".")
    of = "" if _RETRIED.search(amount) else f" of {amount}"
    match reason:
        case Reason.DEADLINE:
            return f"the time{of} seconds that this session had is over" if of else "the time that this session had is over"
        case Reason.STEP_BUDGET:
            return f"this session's budget{of} steps is used up" if of else "this session's budget of steps is used up"
        case _:
            return f"too little is left of this session's budget{of} for model usage"


def stop_line(cause: str) -> str:
    """The line that begins whatever a stopped client is given."""
    return f"{STOP_MARK} Lastcall stopped this run: {cause}."


_BUDGETS = (Reason.STEP_BUDGET, Reason.TOKEN_BUDGET, Reason.COST_BUDGET, Reason.DEADLINE, Reason.TEAM_BUDGET)


def _way_on(reason: Reason) -> str:
    if reason in _BUDGETS:
        return "Start a new session to go on, or have the limit raised."
    return "Send a new message to go on."


def stopped_message(cause: str, reason: Reason) -> str:
    """The same in a sentence for the `message` of an error or of the `lastcall` object, and what to do."""
    return f"Stopped by Lastcall: {cause}. {_way_on(reason)}"


def local_message(cause: str, reason: Reason) -> str:
    """The whole of an answer that no model wrote."""
    return f"{stop_line(cause)}\nThe model gave no closing answer. {_way_on(reason)}"


_FIRMNESS = (
    "Answer now, in plain text: what was found, what is missing, what could be done next.",
    "No tool can be called any more and tool syntax will be discarded. Write the final answer in plain sentences, nothing else.",
    "Only plain sentences are accepted. Write two or three that say what is known about the task so far.",
    "Write one plain sentence that sums up what is known.",
)


def wrap_up_instruction(cause: str, attempt: int) -> str:
    """What asks the model to conclude; firmer with each attempt, from 0."""
    return f"{STOP_MARK} This run ends here: {cause}. {_FIRMNESS[min(attempt, len(_FIRMNESS) - 1)]}"


def joined(parts: Iterable[str]) -> str:
    """Non-empty paragraphs, one blank line apart."""
    return "\n\n".join(part for part in parts if part)
