"""The words Lastcall adds for a model or a person: nudges, wrap-up instructions, stop lines. Every one begins with its mark.

A nudge is said again in each later request, so its text must follow from what is still at hand then: the nudge as recorded and the
result it speaks of, read from the request's own history.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from proxy.amounts import times
from proxy.models import TEXT_REASONS, Allowance, Finding, Reason, Request
from proxy.outcomes import output_text
from proxy.policy import Policy
from proxy.state import Nudge
from proxy.trail import History

NUDGE_MARK = "[lastcall]"
STOP_MARK = "[lastcall stop]"
BUDGET_MARK = "[lastcall budget]"
NOT_EXECUTED = f"{STOP_MARK} not executed"  # the result of a call that was withheld, in a history that the upstream keeps
_QUOTED = 160  # characters of a result's first line

_RETRIED = re.compile(r"429|50[0-4]|529")  # numbers in which some clients read a status to retry (reference: pi, OpenClaw)


def nudge_text(nudge: Nudge, request: Request, history: History, policy: Policy) -> str:
    """The nudge in full. Names the tool, how often and what came back (its first line, cut); never the arguments."""
    if nudge.budget is not None:
        return _budget_notice(nudge.budget, finish_tool(request, policy))
    result = _result_line(nudge, history)
    finish = finish_tool(request, policy)
    if policy.nudge.text is not None:
        values = {"tool": nudge.tool, "count": str(nudge.count), "result": result, "finish_tool": finish or "", "reason": str(nudge.reason)}
        return f"{NUDGE_MARK} " + policy.nudge.text.format_map(values)  # `config` allows these names alone, without attributes
    if nudge.reason in TEXT_REASONS:
        return f"{NUDGE_MARK} {_text_observation(nudge)} {_text_advice(nudge.reason, finish)} {_HONEST}"
    answer = f"call {finish} with what you have" if finish else "give your answer with what you have"
    came_back = f' The last result began: "{result}".' if result else ""
    return f"{NUDGE_MARK} {_observation(nudge)}{came_back} {_advice(nudge, request)}, otherwise {answer}. {_HONEST}"


def _budget_notice(budget: Allowance, finish: str | None) -> str:
    share = 100 if budget.limit <= 0 else int(100 * budget.spent / budget.limit)
    answer = f"calling {finish}" if finish else "a final answer"
    return (
        f"{BUDGET_MARK} {share} % of {_OWNERS[budget.scope]} budget of {_amount(budget)} is used. "
        f"The work ends where it is when the rest is used up: do what matters most first, and keep enough for {answer}."
    )


_HONEST = "If the task cannot be done, saying so and why is a good answer."


def _text_observation(nudge: Nudge) -> str:
    """What the newest answers had in common."""
    several = nudge.count > 1
    match nudge.reason:
        case Reason.EMPTY_OUTPUT:
            return (
                f"The last {nudge.count} answers were empty: no text and no tool call arrived." if several else "The last answer was empty."
            )
        case Reason.TRUNCATED_OUTPUT:
            lost = f"the call of {nudge.tool} in it is incomplete and was not carried out" if nudge.tool else "it said the same as before"
            which = f"The last {nudge.count} answers were" if several else "The last answer was"
            return f"{which} cut off at the output limit; {lost}."
        case Reason.TOOL_MARKUP:
            times = f"The last {nudge.count} answers" if several else "The last answer"
            return f"{times} held a tool call written as text; nothing was carried out."
        case _:
            return f"The last {nudge.count} answers said the same, and nothing was done in between."


def _text_advice(reason: Reason, finish: str | None) -> str:
    """The concrete next step."""
    end = f"call {finish}" if finish else "give the final answer"
    match reason:
        case Reason.EMPTY_OUTPUT:
            return f"Write something visible now: in one sentence where the task stands, then the next step; if nothing is left, {end}."
        case Reason.TRUNCATED_OUTPUT:
            return (
                "Say less at once: split the work into several smaller calls, such as a file written in parts, and keep explanations short."
            )
        case Reason.TOOL_MARKUP:
            return f"Make the call through the tool interface of this conversation; if none is needed any more, {end} in plain sentences."
        case _:
            return f"If a step is left, take it now with a tool call instead of announcing it; otherwise {end} with what you have."


def _observation(nudge: Nudge) -> str:
    tool, often = nudge.tool, times(nudge.count)
    match nudge.reason:
        case Reason.CYCLE:
            return f"The same {len(nudge.calls)} tool calls, {tool} among them, have now gone round {often} without anything new."
        case Reason.SCATTERED_CALL:
            return f"{tool} has now been called {often} in the same way and returned the same each time: nothing was changed in between."
        case Reason.PARALLEL_REPEAT:
            return f"One message held {nudge.count} identical calls of {tool}; each of them returns the same."
        case Reason.UNKNOWN_TOOL:
            return f"{tool} is not among the tools of this conversation; such tools have now been called {often}."
        case Reason.REPEATED_ERROR:
            return f"{tool} has now failed {often} with the same error, whatever its arguments."
        case Reason.TOOL_FAILURES:
            return f"The last {nudge.count} steps with tool calls have all failed, the latest of them {tool}."
        case Reason.REPEATED_OUTPUT:
            return f"{tool} has now given the same output {often}, although it was asked in different ways."
        case Reason.POLL:
            return f"{tool} has now been called {often} in the same way."
        case _:
            return f"{tool} has now been called {often} in the same way and nothing new came back."


_WRAP_UP = (
    "What these results say is likely all there is; the same call will say it again. "
    "It is time to wrap up: take one different step if something specific is still missing"
)
_LISTED = 12  # tools, and characters of each name, that an unknown tool's nudge shows
_NAME = 64


def _advice(nudge: Nudge, request: Request) -> str:
    """What to do, up to "otherwise"."""
    match nudge.reason:
        case Reason.UNKNOWN_TOOL:
            names = [name[:_NAME] for name in request.tools[:_LISTED]]
            more = ", …" if len(request.tools) > _LISTED else ""
            return f"Calling it again cannot work. The tools are: {', '.join(names)}{more}. Use one of these if it helps"
        case Reason.REPEATED_ERROR:
            return "Another variation will fail in the same way. Change what the error complains of, or go a different way"
        case Reason.TOOL_FAILURES:
            return "Find out why before the next attempt: read the errors, check the parameters, make one call that must work. Do that once"
        case Reason.REPEATED_OUTPUT:
            return "Its arguments make no difference to what it says. Take one step of another kind if something specific is still missing"
        case Reason.POLL:
            return (
                "To wait, make one call that waits longer or until it is done, or do other work meanwhile. "
                "To page through something, ask for more at once. Go on like that if it is needed"
            )
        case _:
            return _WRAP_UP


def _result_line(nudge: Nudge, history: History) -> str:
    """First line of the looped call's latest result up to the nudge's place."""
    calls = frozenset(nudge.calls)
    for message in reversed(history.messages[: nudge.message + 1]):  # none where it stands at a user's text: there was no result
        for call in reversed(message.calls):
            if call.fingerprint in calls and call.content:
                first = output_text(call.content).split("\n", 1)[0].strip()
                return first if len(first) <= _QUOTED else first[:_QUOTED] + "…"
    return ""


def finish_tool(request: Request, policy: Policy) -> str | None:
    """The first of the policy's finish tools that the request offers."""
    return next((tool for tool in policy.finish_tools if tool in request.tools), None)


# With {tool}, {times} and, of a cycle, {calls}.
_WHY = {
    Reason.REPEATED_CALL: "{tool} was asked for {times} in the same way without anything new",
    Reason.CYCLE: "the same {calls} tool calls went round {times} without anything new",
    Reason.SCATTERED_CALL: "{tool} was asked for {times} in the same way although nothing had changed in between",
    Reason.PARALLEL_REPEAT: "one message repeated the same call of {tool} {times}",
    Reason.UNKNOWN_TOOL: "tools that are not offered, {tool} among them, were asked for {times}",
    Reason.REPEATED_ERROR: "{tool} was asked for {times} and failed with the same error each time",
    Reason.TOOL_FAILURES: "tool calls failed {times} in a row, {tool} among them",
    Reason.REPEATED_OUTPUT: "{tool} was asked for {times} in different ways and gave the same output",
    Reason.POLL: "{tool} was asked for {times} while it waited for something that did not change",
    Reason.REPEATED_TEXT: "the model said the same {times} and did nothing in between",
    Reason.EMPTY_OUTPUT: "the model answered with nothing {times} in a row",
    Reason.TRUNCATED_OUTPUT: "the model's answer was cut off at the output limit {times} in a row",
    Reason.TOOL_MARKUP: "the model wrote tool calls as text {times} in a row, which carries nothing out",
}


def why(finding: Finding) -> str:
    """What happened, for a stop line: one clause, no digits that a client could take for a status."""
    often = "many times" if _RETRIED.search(str(finding.count)) else times(finding.count)
    if not finding.calls and finding.reason not in TEXT_REASONS:
        return f"{finding.tool} of this session were stopped {often}"
    return _WHY.get(finding.reason, _WHY[Reason.REPEATED_CALL]).format(tool=finding.tool, times=often, calls=len(finding.calls))


_OWNERS = {"session": "this session's", "parent": "the parent session's", "team": "the team's"}
_HOLDERS = {"session": "this session", "parent": "the parent session", "team": "the team"}
_THINGS = {"steps": " steps", "calls": " requests at once", "sessions": " sessions at once", "deadline": " seconds"}


def why_budget(budget: Allowance) -> str:
    """The same for a budget. Says "model usage" for tokens: some clients compact and go on when an error speaks of tokens."""
    whose, amount = _OWNERS[budget.scope], _amount(budget)
    said = "" if _RETRIED.search(amount) else f" of {amount}"
    if budget.held is not None:
        used = _figure(budget, budget.spent)
        return f"calls under way hold {_figure(budget, budget.held)} of {whose} budget of {amount}, of which {used} is used"
    match budget.unit:
        case "deadline":
            return f"the time{said if budget.scope == 'session' else ''} that {_HOLDERS[budget.scope]} had is over"
        case "steps":
            return f"{whose} budget{said or ' of steps'} is used up"
        case "paused" | "stopped":
            return f"an operator {budget.unit} {_HOLDERS[budget.scope]}"
        case "calls" | "sessions":
            return f"{whose} limit{said or ' of' + _THINGS[budget.unit]} is reached"
        case _:
            return f"too little is left of {whose} budget{said} for model usage"


def _amount(budget: Allowance) -> str:
    """A limit in words: `50 steps a day`, `$12.5`, `5,000,000`."""
    number = _figure(budget, budget.limit)
    per = f" a {budget.per}" if budget.per else ""
    things = _THINGS.get(budget.unit, "")
    if budget.limit == 1:
        things = re.sub(r"s\b", "", things, count=1)
    return f"{number}{things}{per}"


def _figure(budget: Allowance, amount: float) -> str:
    """An amount in the budget's unit: `50`, `$12.5`, `5,000,000`."""
    return ("$" if budget.unit == "cost" else "") + f"{amount:,.3f}".rstrip("0").rstrip(".")


def why_above(reason: Reason) -> str:
    """The same for a session above the one that asks."""
    return f"the parent session was stopped ({reason})"


def why_sender(reason: Reason) -> str:
    """The same for the agent of this session that sent the one that asks, or one above it."""
    return f"the agent above this sub-agent was stopped ({reason})"


def stop_line(cause: str) -> str:
    """The line that begins whatever a stopped client is given."""
    return f"{STOP_MARK} Lastcall stopped this run: {cause}."


def _way_on(reason: Reason, budget: Allowance | None, *, above: bool) -> str:
    if reason is Reason.OPERATOR:
        return "An operator can let it go on."
    if above:
        return "It can go on when the one above it does."
    if budget is None:
        return "Send a new message to go on."
    if budget.passes:
        return "Try again when others have ended."
    if budget.resets_at is not None:
        return f"It is renewed at {datetime.fromtimestamp(budget.resets_at, UTC):%Y-%m-%d %H:%M} UTC, or have the limit raised."
    return "Start a new session to go on, or have the limit raised." if budget.scope == "session" else "Have the limit raised to go on."


def stopped_message(cause: str, reason: Reason, budget: Allowance | None = None, *, above: bool = False) -> str:
    """The same in a sentence for the `message` of an error or of the `lastcall` object, and what to do. above: the stop is another's."""
    who = "Held back" if budget is not None and budget.passes else "Stopped"
    return f"{who} by Lastcall: {cause}. {_way_on(reason, budget, above=above)}"


def local_message(cause: str, reason: Reason, budget: Allowance | None = None, *, above: bool = False) -> str:
    """The whole of an answer that no model wrote. above: as in `stopped_message`."""
    return f"{stop_line(cause)}\nThe model gave no closing answer. {_way_on(reason, budget, above=above)}"


_FIRMNESS = (
    "Answer now, in plain text: what was found, what is missing, what could be done next.",
    "No tool can be called any more and tool syntax will be discarded. Write the final answer in plain sentences, nothing else.",
    "Only plain sentences are accepted. Write two or three that say what is known about the task so far.",
    "Write one plain sentence that sums up what is known.",
)


def wrap_up_instruction(cause: str, attempt: int) -> str:
    """What asks the model to conclude; firmer with each attempt, from 0."""
    return f"{STOP_MARK} This run ends here: {cause}. {_FIRMNESS[min(attempt, len(_FIRMNESS) - 1)]}"


def why_flaw(finding: Finding) -> str:
    """What was wrong with one answer's text, in one clause."""
    match finding.reason:
        case Reason.TOOL_MARKUP:
            return "the model wrote a tool call as text"
        case Reason.REPEATED_TEXT:
            return "the model wrote one passage again and again"
        case _:
            return "the answer is not what its stage expects"


def cut_line(cause: str) -> str:
    """The line that says that an answer is not all that the model wrote."""
    return f"{STOP_MARK} Lastcall cut this answer: {cause}."


def mended_message(cause: str) -> str:
    """The same for the `message` of the `lastcall` object."""
    return f"Lastcall changed this answer: {cause}."


_AGAIN = (
    "Nothing was carried out and nobody saw it. Answer again in plain text, from what is known already.",
    "No tool is available in this turn and tool syntax is discarded. Write the answer in plain sentences, nothing else.",
    "Only plain sentences are accepted. Write two or three that answer as far as possible, or say that it cannot be done.",
)


def again_instruction(reason: Reason, contains: Sequence[str], excludes: Sequence[str], *, attempt: int) -> str:
    """What asks for an answer once more; firmer with each attempt, from 0."""
    if reason is not Reason.EXPECT:
        return f"{NUDGE_MARK} Your last answer held a tool call written as text. {_AGAIN[min(attempt, len(_AGAIN) - 1)]}"
    must = [f'contain "{part}"' for part in contains] + [f'not contain "{part}"' for part in excludes]
    firm = "Write the whole answer" if attempt == 0 else "This is a strict requirement: write the whole answer"
    return f"{NUDGE_MARK} The answer must {' and '.join(must)}, character for character. {firm} again so that it does."


def joined(parts: Iterable[str]) -> str:
    """Non-empty paragraphs, one blank line apart."""
    return "\n\n".join(part for part in parts if part)
