"""What the newest answers of a lane said, for the detectors that look at texts: as far back as nobody said anything new.

Read from the request's own history. The record adds which answers were cut at the output limit, which no history says, and when the
lane last rested: what is asked again after a while is asked on purpose.
"""

import re
from typing import Any

import msgspec

from proxy.effects import Effect, deed_of
from proxy.fingerprint import Fingerprints, normal_text
from proxy.markup import leaked
from proxy.models import Request, ToolCall, text_of
from proxy.state import Lane
from proxy.trail import History, Messages, from_person

MOST = 24  # answers that are looked back at
_AT_LIMIT = frozenset({"length", "max_tokens", "max_output_tokens", "model_length", "MAX_TOKENS"})
_OWN_ENDS = frozenset(
    {"stop", "end_turn", "stop_sequence", "tool_calls", "tool_use", "function_call", "completed", "complete", "eos", "eos_token"}
)


class Turn(msgspec.Struct, frozen=True, gc=False):
    """One answer. text: identity of what it says, without clock times, attempt counters and the like, case and spaces aside.

    empty: neither text nor calls. cut: it ended at the output limit; tool: of the call that was cut then, "" for a text. leaked: it wrote
    a tool call as text. waits: it speaks a command that lets time pass, or a step that is made many times.
    """

    text: int
    empty: bool = False
    cut: bool = False
    tool: str = ""
    leaked: bool = False
    waits: bool = False


def cut_at_limit(finish: str | None) -> bool:
    """Whether an answer ended because the output limit was reached, by the upstream's word for it."""
    return finish in _AT_LIMIT


def ended_itself(finish: str | None) -> bool:
    """Whether an answer is all that the model had to say, by the upstream's word for it: neither cut, nor withheld, nor paused."""
    return finish is None or finish.lower() in _OWN_ENDS


def is_under_way(finish: str | None) -> bool:
    """Whether an answer is still being made, in the background, by the upstream's word for it: what it says is asked for later."""
    return finish in ("queued", "in_progress")


def goes_on(finish: str | None) -> bool:
    """Whether an answer without calls is not all of it, by the upstream's word for it: the client is to ask for the rest."""
    return finish == "pause_turn" or is_under_way(finish)


def known_tools(request: Request, history: History) -> frozenset[str]:
    """The tools that an answer may speak of: offered now or called before."""
    return frozenset(request.tools).union(*[[call.name for call in made] for made in history.messages.made])


def schemas_of(request: Request) -> dict[str, dict[str, Any]]:
    """The JSON schema of each offered tool's arguments, by its name, as every dialect writes them."""
    try:
        offered = msgspec.json.decode(request.tools_raw)
    except (msgspec.DecodeError, RecursionError):
        return {}
    found: dict[str, dict[str, Any]] = {}
    for tool in offered if isinstance(offered, list) else ():
        function = tool.get("function", tool) if isinstance(tool, dict) else None
        if isinstance(function, dict) and function.get("name") in request.tools:
            schema = function.get("parameters", function.get("input_schema"))
            found[function["name"]] = schema if isinstance(schema, dict) else {}
    return found


def said_mark(text: str, prints: Fingerprints) -> int:
    """The identity of what a text says: case, spaces, clock times, attempt counters and the like aside."""
    return prints.text("said", _plain(text))


def _plain(text: str) -> str:
    return " ".join(normal_text(text).lower().split())


def turn_of(text: str, calls: tuple[ToolCall, ...], tools: frozenset[str], prints: Fingerprints, *, cut: bool) -> Turn:
    """One answer as the detectors see it."""
    said = _plain(text)
    tool = next((call.name for call in calls if _is_broken(call)), calls[-1].name if calls else "")
    return Turn(
        prints.text("said", said),
        empty=not said and not calls,
        cut=cut,
        tool=tool if cut else "",
        leaked=not calls and bool(said) and leaked(text[:_LONGEST_READ], tools),
        waits=not calls and _waits(text),
    )


# How agents without tool calls write a command or an action: in tags, or as the one script of a Markdown fence.
_SPOKEN = re.compile(r"<(command|action)>([^<]{1,400})</\1>|^```(?:bash|sh|shell)[^\n]{0,20}\n([^`]{1,400})\n```", re.MULTILINE)
_LONGEST_SPOKEN = 4_096  # characters
_LONGEST_READ = 65_536  # characters in which markup is looked for


def _waits(text: str) -> bool:
    return any(map(_spoken_waits, _SPOKEN.finditer(text[:_LONGEST_SPOKEN])))


def _spoken_waits(found: re.Match[str]) -> bool:
    key, name = ("action", "") if found[1] == "action" else ("command", "bash")
    did = deed_of(name, msgspec.json.encode({key: found[2] or found[3]}).decode(), {})
    return did.effect is Effect.POLL or did.steps


def newest(request: Request, history: History, lane: Lane, run: int, prints: Fingerprints) -> list[Turn]:
    """The newest answers without calls of their own, or with a call cut short, oldest first.

    They reach back to the first answer after which a person said something, unless it is what is said after each of them; none where
    a person has just spoken, so that the run that begins there is a new one.
    """
    messages = history.messages
    last = len(messages.made) - 1
    if last < lane.rested or run > last or _acts(messages, last, lane):
        return []
    return _as_far_back(request, history, lane, run, prints)


def _as_far_back(request: Request, history: History, lane: Lane, run: int, prints: Fingerprints) -> list[Turn]:
    messages = history.messages
    last, remembered = len(messages.made) - 1, len(messages.earlier)
    turns: list[Turn] = []
    tools: frozenset[str] | None = None
    usual: tuple[int, ...] = ()
    for at in range(last, max(last - MOST, lane.rested - 1, -1), -1):
        if at < remembered:
            turn = _remembered(history, at, lane, run, prints)
            if turn is None:
                break
            turns.append(turn)
            continue
        if _acts(messages, at, lane):
            break
        said = _said_after(request, history, at, prints)
        if said and not usual and any(said == _said_after(request, history, before, prints) for before in range(max(at - MOST, 0), at)):
            usual = said
        if said and said != usual:
            break
        tools = known_tools(request, history) if tools is None else tools
        made = messages.made[at]
        cut = bool(made) or messages.answers[at] in lane.shortened
        turns.append(turn_of(text_of(request.items[messages[at].item].content), made, tools, prints, cut=cut))
    return turns[::-1]


def _acts(messages: Messages, at: int, lane: Lane) -> bool:
    """Whether an answer made calls that can be carried out: none was cut short."""
    made = messages.made[at]
    if not made or messages.answers[at] in lane.shortened:
        return False
    for call in made:  # noqa: SIM110  # one, nearly always
        if _is_broken(call):
            return False
    return True


def _remembered(history: History, at: int, lane: Lane, run: int, prints: Fingerprints) -> Turn | None:
    """An answer without calls that only the upstream has; None for another, and for one before the run: what people said is not known."""
    message = history.messages.earlier[at]
    if message.calls or not message.said or at < run:
        return None
    return Turn(message.said, empty=message.said == said_mark("", prints), cut=message.answer in lane.shortened)


def _said_after(request: Request, history: History, at: int, prints: Fingerprints) -> tuple[int, ...]:
    """Identities of what people may have said after a message and before the next."""
    texts = [text_of(request.items[user.item].content).strip() for user in reversed(history.users) if user.before == at + 1]
    return tuple(prints.text("user", text) for text in texts if from_person(text))


def _is_broken(call: ToolCall) -> bool:
    """Whether a call's arguments begin as an object and do not end as one: what is left of a call that was cut."""
    if call.arguments.endswith("}"):  # nearly always
        return False
    arguments = call.arguments.strip()
    return not call.custom and arguments.startswith("{") and not arguments.endswith("}")
