"""What is wrong with the text of one answer: markup where no tool can be called, a passage without end, not what its stage expects.

No loop of the run yet, so that the run goes on: the answer is asked for again, or what is good of it is given and said to be all.
"""

import json
import re

import msgspec

from proxy.engine.case import Case, Flaw
from proxy.markup import Scanner, spelled
from proxy.models import Answer, Choice, Finding, Reason, Role, ToolCall, text_of
from proxy.policy import Expectation
from proxy.refrain import Refrain, refrain_of
from proxy.turns import ended_itself, known_tools, schemas_of
from proxy.watch import Watch

# People who ask about markup want to see it.
_ASKS_ABOUT = re.compile(
    r"(?:tool|function)[ _-]?call(?:s|ing)?\b[^\n]{0,60}\b(?:format|syntax|markup|template|token|tag|xml|raw|look)"
    r"|(?:format|syntax|markup|template|token|tag|raw)s?\b[^\n]{0,60}\b(?:tool|function)[ _-]?call|special[ _-]token|chat[ _-]template",
    re.IGNORECASE,
)
_TOKEN = re.compile(r'[<\[\]|\uff5c\u2016][^\s{"=]{1,40}')


def flaw_of(case: Case, answer: Answer) -> Flaw | None:
    """The first thing wrong with an answer's text; None for a good one, one that makes calls, and several choices."""
    choice = _only_words(answer)
    if choice is None:
        return None
    text = choice.text
    if not text.strip():
        return _lost_in_thought(case, choice)
    scanner = _scanner(case)
    if scanner is not None:
        clean = scanner.feed(text) + scanner.finish()
        if scanner.cut:
            return Flaw(_finding(Reason.TOOL_MARKUP, 1), clean.rstrip(), again=scanner.leaked)
    refrain = refrain_of(text, _asked(case)) if _cuts_refrains(case) else None
    if refrain is not None:
        finding = _finding(Reason.REPEATED_TEXT, refrain.times)
        return Flaw(finding, text[: refrain.start].rstrip(), again=False, last=_is_second(case, finding))
    if case.expects is not None and not _fulfils(text, case.expects):
        return Flaw(_finding(Reason.EXPECT, 1), text, again=True)
    return None


def _only_words(answer: Answer) -> Choice | None:
    """The one choice of an answer without calls."""
    choice = answer.choices[0] if len(answer.choices) == 1 else None
    return None if choice is None or choice.calls else choice


def _lost_in_thought(case: Case, choice: Choice) -> Flaw | None:
    """An answer with nothing but a tool call in its reasoning: no client acts on that, and the run would end without a word."""
    scanner = _scanner(case) if ended_itself(choice.finish) else None
    if scanner is None:
        return None
    scanner.feed(choice.thought)
    scanner.finish()
    return Flaw(_finding(Reason.TOOL_MARKUP, 1), "", again=True) if scanner.leaked else None


def repaired(case: Case, answer: Answer) -> Answer | None:
    """An answer with the calls that its text spells out, or its reasoning where it has no text; None when there are none that can be made.

    None too where the policy does not want that.
    """
    choice = _only_words(answer)
    if choice is None or not _repairs(case):
        return None
    scanner = _new_scanner(case)
    spoken = bool(choice.text.strip())
    thought = choice.thought if ended_itself(choice.finish) else ""
    clean = scanner.feed(choice.text if spoken else thought) + scanner.finish()
    calls = spelled("".join(scanner.taken), schemas_of(case.request)) if scanner.leaked else None
    if calls is None:
        return None
    made = tuple([ToolCall(_id(case, answer, at), name, json.dumps(arguments)) for at, (name, arguments) in enumerate(calls)])
    return msgspec.structs.replace(answer, choices=(Choice(clean.rstrip() if spoken else "", made, "tool_calls"),))


def repair_of() -> Flaw:
    """What was wrong with an answer that was repaired."""
    return Flaw(_finding(Reason.TOOL_MARKUP, 1), "", again=True)


def _id(case: Case, answer: Answer, at: int) -> str:
    """An id that no other call of the conversation has."""
    parts = [answer.id or "", str(case.history.same), str(at)]
    return f"call_{case.prints.digest(b'repaired', *[part.encode() for part in parts]):016x}"


def _repairs(case: Case) -> bool:
    return case.policy.repair_calls and case.request.may_call


def watch_of(case: Case) -> Watch | None:
    """What a stream's text is followed with; None where nothing of it can be wrong, or an answer has several choices."""
    if case.request.choices > 1:
        return None
    scanner = _new_scanner(case) if _repairs(case) else _scanner(case)
    refrain = Refrain(_asked(case)) if _cuts_refrains(case) else None
    return None if scanner is None and refrain is None else Watch(scanner, refrain)


def _scanner(case: Case) -> Scanner | None:
    if case.request.may_call or Reason.TOOL_MARKUP not in case.policy.ladders:
        return None
    return _new_scanner(case)


def _new_scanner(case: Case) -> Scanner:
    known: dict[str, bool] = {}  # of each token only the first is looked for in the whole request

    def is_shown(sign: str) -> bool:
        found = _TOKEN.search(sign)
        token = sign if found is None else found.group()
        if token not in known:
            known[token] = _is_shown(case, token)
        return known[token]

    return Scanner(known_tools(case.request, case.history), is_shown)


def _is_shown(case: Case, token: str) -> bool:
    """Whether the request itself speaks of such markup: it is then the client's own protocol, or what the user wants to see."""
    if any(token in text_of(item.content) for item in case.request.items if item.role in (Role.SYSTEM, Role.USER)):
        return True
    return _ASKS_ABOUT.search(_asked(case)) is not None


def _asked(case: Case) -> str:
    """The newest text of the user."""
    users = case.history.users
    return text_of(case.request.items[users[-1].item].content)[-4096:] if users else ""


def _cuts_refrains(case: Case) -> bool:
    ladder = case.policy.ladders.get(Reason.REPEATED_TEXT)
    return ladder is not None and ladder.stop_at is not None


def _is_second(case: Case, finding: Finding) -> bool:
    """Whether an answer of this run was cut for it before."""
    return case.place.current and bool(finding.calls & set(case.place.lane.pruned))


def _finding(reason: Reason, count: int) -> Finding:
    return Finding(reason, "", count, None, None, frozenset({1 + list(Reason).index(reason)}))


def _fulfils(text: str, expected: Expectation) -> bool:
    return all(part in text for part in expected.contains) and not any(part in text for part in expected.excludes)
