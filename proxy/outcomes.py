"""What a result says of its call: that it failed, that it still runs, that there was nothing, or only that it was done.

Said by the first words, a status line, an exit status or a member of the JSON object that the result is; never by a word somewhere in it,
since files and logs hold any word. Dialects that can mark a result as an error do so beside this. Errs on the side of success.
Every pattern is anchored and looks at the ends of a result only, so that a result's length does not matter.
"""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from proxy.models import text_of

_OPENING, _TAIL = 160, 100  # bytes at the ends of a result: where a failure or a status says so
_HEAD = 400  # characters in which a status line stands
_HEAD_BYTES, _TAIL_BYTES = 512, 320  # in which nearly every text has as many characters
_QUOTE = ord('"')
_READ_WHOLE = "{#"  # so begin texts that say something by all that they are
_EXIT_LINE = 100  # characters
_BRIEF = 100  # characters
_LONG, _LINES = 400, 5  # characters and line ends; what fails and says more than that gives a report


# What was read of a result, kept with its call as flags: bits, so that none may change its value between releases.
VOID = 1  # Lastcall's own words, in the place of a result
FAILED = 2
WAITING = 4  # what was asked for still runs
EXITED = 8  # failed only by a program's exit status: there is a report to read
BRIEF = 16  # a line or two
NOTHING = 32  # it says that there is nothing

# Where none of these stands at an end of a result it says nothing. The commonest stand first; to look for one after the other takes half
# the time of a pattern.
_GATE = (
    *("not", "no ", "return", "exit", "code", "error", "fail", "status", "state", "success", "still", "exception", "traceback"),
    *("fatal", "proceed", "unknown", "unrecogni", "unsupported", "unable", "invalid", "missing", "denied", "phase", '"ok', "queued"),
    *("running", "pending", "progress", "processing", "waiting", "creating", "initiali", "terminating", "starting", "activating"),
)
# Of a beginning in small letters, as those below. A repetition with a `+` behind it gives nothing back, which would be tried in vain; an
# alternative that begins with a letter is passed over at once, one that begins with what may be left out is not.
_FAILS = r"""
      \W{0,3}(?:
          \w*+(?<=[rn])(?:(?<=error)|(?<=exception))\s*[:\]>)(-]
        | (?:tool|command|execution|validation|fatal)\ \w*+(?:(?<=error)|(?<=exception))\s*[:\]>)(-]
        | error\ (?:calling|executing|running|invoking|in|while|during|occurred|reading|writing|editing|parsing|fetching|loading)\b
        | failed(?:\ to\b|\s*:)
        | fatal\s*:
        | (?:unknown|invalid|unrecogni[sz]ed|unsupported|no\ such)\ (?:tool|function|command|action|argument|parameter|option)\b
        | tool\ \S{1,80}+\ (?:was\ |is\ |does\ )?not\ (?:found|available|exist|recogni[sz]ed|registered|defined|known)\b
        | <tool_use_error>
        | (?:could\ not|cannot|can't|unable\ to)\ (?:find|open|read|access|connect|parse|execute|locate|resolve)\b
      )
    | (?:tool|command|request|operation|edit|call|the\ (?:tool|command|request|operation|edit|call))
        \ (?:call\ |use\ |execution\ )?(?:has\ )?failed\b
    | traceback\ \(most\ recent\ call\ last
    | \S{1,80}+\ is\ not\ a\ (?:valid|known|registered|recogni[sz]ed)\ (?:tool|function|command)\b
    | (?:no|there\ is\ no)\ (?:tool|function)\ (?:named|called|with)\b
    | (?:missing|invalid|\S{1,80}:\ (?:missing|invalid))\ (?:required\ )?(?:argument|parameter|field|property|input)s?\b
    | (?:permission|access)\ denied\b
    | permission\ to\ use\ [^\n]{1,200}\ (?:has\ been|was|is)\ denied\b
    | the\ user\ (?:doesn't|does\ not)\ want\ to\ proceed\ with\ this\ tool\ use\b
    """
_FAILURE = re.compile(_FAILS, re.VERBOSE)
_COMPLAINTS = (": command not found", ": not found", ": no such file or directory", ": permission denied", ": not a directory")
_COMPLAINT = 400  # characters
_EXIT = re.compile(
    r"""\W{0,4}(?:
      (?:the\ )?(?:(?:command|process|program|script|execution)\ )?(?:has\ )?
        (?:(?:finished|exited|terminated|completed|failed|ended)\ (?:with\ )?(?:an?\ )?(?:non-?zero\ )?
            (?:(?:exit|return)[\ _-]?)?(?:code|status)
          |(?:exit|return)[\ _-]?(?:code|status)|exit)\ ?[:=]?\ ?(?P<code>-?\d{1,10})\b
    | returncode>(?P<tag>-?\d{1,10})</returncode
    )\W{0,4}(?:\Z|[\s:)\]].{0,60}\Z)""",
    re.VERBOSE | re.IGNORECASE,
)
_ONGOING = r"(?:running|pending|in[ _-]?progress|queued|waiting|processing)"
_WORDS = rf"(?:{_ONGOING}|still\s+{_ONGOING})"
_NOT_YET = r"not\s+(?:yet\s+)?(?:ready|finished|done|completed?)"
_PAUSE = r"(?:$|[.…!;,(\[]|\n)"
_WORD = r"""[a-z0-9_.'`"#\w-]{1,60}+[ \n\s]++"""  # what is commonest is named, to be found at once
_WAITS = rf"""
      \W{{0,4}}(?:
          {_WORDS}\b\s*{_PAUSE}
        | (?:|(?:the|this|your)\s+)(?:|{_WORD}(?:|{_WORD}(?:|{_WORD})))(?:is|are)\s+(?:{_WORDS}\b\s*{_PAUSE}|still\s+\w|{_NOT_YET}\b)
        | {_NOT_YET}\b(?:\s+yet)?\s*{_PAUSE}
        | (?:waiting\s+(?:for|on)|awaiting|still\s+(?:waiting\s+(?:for|on)|awaiting))\b
        | (?:no|there\s+(?:is|are)\s+no)(?:thing)?\s+(?:new(?:\s+\w{{1,30}}){{0,2}}|(?:\w{{1,30}}\s+){{0,2}}yet)\s*(?:{_PAUSE}|[)\]])
      )
    """
_UNDER_WAY = re.compile(_WAITS, re.VERBOSE)
_FAILS_OR_WAITS = re.compile(f"{_FAILS}|{_WAITS}", re.VERBOSE)  # neither, nearly always: to look once is half the work
_STILL = re.compile(
    r"""\W{0,4}(?:実行中|処理中|待機中|進行中|执行中|进行中|运行中|处理中|等待中|排队中|выполняется|в\ процессе
      |en\ cours|läuft|in\ bearbeitung|en\ curso|en\ progreso|em\ andamento)\W{0,4}""",
    re.VERBOSE | re.IGNORECASE,
)
# Playwright's own words for "done": the code that was run, and nothing of the page.
_CODE_RUN = re.compile(r"(?:### Result\n[^\n]{0,60}\n{1,2})?### Ran Playwright code\n```js\n[^`#]{1,400}\n```")
_PICTURE = re.compile(rb'"type"\s*:\s*"(?:(?:input_|output_)?(?:image|document|file)|computer_screenshot)')
_STATUS_LINE = re.compile(
    rf"^\W{{0,4}}(?:(?:job|task|run|build|process|current|command)[ _-])?(?:status|state|phase)\W{{0,4}}[:=]\W{{0,4}}{_WORDS}\b\W{{0,4}}$"
    rf"|^process running with session id\b|^<(?:status|state)>{_WORDS}<|^\[?the command has no new output after\b",
    re.MULTILINE,
)
_ON_THE_WAY = r"(?:container)?creating|(?:pod)?initiali[sz]ing|terminating|starting|provisioning|deploying|activating|building"
_OTHER_STATES = r"missing|warning|failing|passing|nothing|existing|listening|serving|outstanding"  # that things stay in
_STATUS_WORD = re.compile(rf"(?:\w{{1,30}}_)?(?:{_WORDS}|(?!(?:{_OTHER_STATES})$)[a-z]{{2,20}}ing)", re.IGNORECASE)
_STATUS_KEY = re.compile(r"\w{0,30}(?:status|state|phase)", re.IGNORECASE)
_JOBS_KEY = re.compile(r"\w{0,30}(?:runs|jobs|checks|builds|deployments|pipelines)", re.IGNORECASE)
_JOBS = 32  # of a list that are looked at
_COLUMN = re.compile(rf"(?:\t|\ \ )(?:pending|queued|in_progress|{_ON_THE_WAY})(?=\t|\ \ |$)", re.MULTILINE)
# One of these stands in whatever those lines and columns are, and none of them in most texts.
_STATUS_WORDS = (
    *("running", "pending", "waiting", "processing", "initiali", "queued", "progress", "no new output"),
    *("creating", "terminating", "starting", "provisioning", "deploying", "activating", "building"),
)
_NESTED, _LONGEST_STATUS = 3, 2_000  # how deep, and in how long an object (characters), a status is looked for
_NONE = re.compile(
    r"""\W{0,4}(?:
      (?:there\ (?:is|are|were|was)\ )?(?:no|0|zero)\ (?:\w+\ ){0,3}
        (?:results?|matches|match|files?|output|hits?|entries|entry|items?|records?|rows?|documents?|lines?|occurrences?|issues?|data)\b[^\n]{0,80}
    | (?:system-reminder>\W?)?warning:\ the\ file\ exists\ but\ [^\n]{0,80}
    | (?:nothing|none|null|undefined|empty|not\ found|\(?no\ output\)?|no\ content)\b[^\n]{0,40}
    )?\W{0,4}""",
    re.VERBOSE | re.IGNORECASE,
)


# What gemini-cli and qwen-code write below a command's output.
_BELOW = re.compile(
    r"""\n(?:Error:\ [^\n]{0,200}\n)?(?:Exit\ Code:\ (?:(?P<code>-?\d{1,10})|[^\n]{1,20})\n)?
      (?:Signal:\ [^\n]{1,20}\n)?(?:Background\ PIDs:\ [^\n]{1,100}\n)?Process\ Group\ PGID:\ [^\n]{1,20}\Z""",
    re.VERBOSE,
)
_LONGEST_BELOW = 420  # characters
_ABOVE = re.compile(r"Chunk ID: |Wall time: |Exit code: ")  # so begins what Codex writes above it


# A failure that asks for patience: what is asked for again later may well be there then.
_LATER = re.compile(
    r"""(?<!\d)429(?!\d)|rate[ _-]?limit|too\ many\ requests|overloaded|temporarily\ unavailable
      |(?:try|retry)\ again\ (?:in|later)|retry[ -]after""",
    re.VERBOSE | re.IGNORECASE,
)


class _Report(msgspec.Struct, gc=False):
    error: Any = None
    success: Any = None
    ok: Any = None
    is_error: Any = None
    isError: Any = None
    status: Any = None
    exit_code: Any = None
    exitCode: Any = None
    returncode: Any = None
    return_code: Any = None
    metadata: Any = None


_REPORT = msgspec.json.Decoder(_Report)
_ENDS = msgspec.json.Decoder(tuple[str, str])


def read_outcome(content: bytes, *, marked: bool = False) -> int:
    """What a result's raw JSON value says, as flags. marked: the client itself marked it as an error."""
    long = len(content) > 4 * _BRIEF
    if long and not marked and _says_nothing(content):
        return 0
    tells = marked or _holds((content[:_OPENING] + content[-_TAIL:]).decode("latin-1").lower(), _GATE)
    if long and not tells:
        return 0
    text = text_of(content).strip()
    flags = BRIEF if _is_brief(text) and (content.startswith(b'"') or not _PICTURE.search(content)) else 0
    if flags and _STILL.fullmatch(text):
        return flags | WAITING
    if tells:
        report = _report(text) if text.startswith("{") else None
        failed = _failed(text, report)
        if failed is not None:
            return flags | FAILED | failed | (WAITING if _LATER.search(text[:_HEAD]) else 0)
        if marked and _found_nothing(*_status(text)):
            return flags | NOTHING
        if marked:  # the client says so, not the text: where it is long, there is a report to read
            return flags | FAILED | (EXITED if len(text) > _LONG or text.count("\n") > _LINES else 0)
        if _under_way(text, report):
            return flags | WAITING
    return flags | NOTHING if flags and _NONE.fullmatch(text) else flags


def _says_nothing(content: bytes) -> bool:
    """Whether the ends of a long text show that it says nothing, as nearly all do: the rest of it need not be read."""
    if content[0] != _QUOTE:
        return False
    opening, ending = content[:_HEAD_BYTES].rpartition(b" ")[0], content[-_TAIL_BYTES:].partition(b" ")[2]
    try:  # what ends or begins at a space ends or begins within no character
        text, tail = _ENDS.decode(b"".join((b"[", opening, b'","', ending, b"]")))
    except ValueError:
        return False
    text, tail = text.strip(), tail.rstrip()
    if len(text) <= _HEAD or len(tail) < _TAIL or text[0] in _READ_WHOLE:
        return False
    head = _small(text[:_HEAD])
    if _FAILS_OR_WAITS.match(head) or _shows_status(head):
        return False
    return not _tells_exit(f"{head}\n{tail[-_TAIL:].lower()}")


def _small(head: str) -> str:
    """In small letters, each of which is one: that of İ is two, of which the second ends a word."""
    return head.lower().replace("i\u0307", "i")


def _is_brief(text: str) -> bool:
    return (len(text) <= _BRIEF and text.count("\n") < 2) or (text.startswith("### ") and _CODE_RUN.fullmatch(text) is not None)


def _report(text: str) -> _Report | None:
    try:
        return _REPORT.decode(text)
    except (ValueError, RecursionError):
        return None


def _failed(text: str, report: _Report | None) -> int | None:
    """None for a success. A program that ended with a status other than 0 is one that failed by its report, if there is any."""
    if report is not None:
        said = (report.success is False, report.ok is False, report.is_error is True, report.isError is True)
        if bool(report.error) or any(said) or report.status in ("error", "failed", "failure"):
            return 0
        inner = report.metadata.get("exit_code") if isinstance(report.metadata, dict) else None
        codes = (report.exit_code, report.exitCode, report.returncode, report.return_code, inner)
        code = next((code for code in codes if isinstance(code, int)), 0)
        return EXITED if code else None
    return 0 if _complains(text) else _exited(text)


def _complains(text: str) -> bool:
    """Whether a text begins like an error, or is the one line of a shell that could not do what it should."""
    if _FAILURE.match(_small(text[:_HEAD])):
        return True
    return len(text) <= _COMPLAINT and "\n" not in text and text.lower().endswith(_COMPLAINTS)


def _exited(text: str) -> int | None:
    """The exit status stands in the first lines or the last one."""
    status, said = _status(text)
    if status in (None, "0") or _found_nothing(status, said):
        return None
    return 0 if _complains(said) else EXITED


def _status(text: str) -> tuple[str | None, str]:
    """A program's exit status, without leading zeros, None where there is none, and what it said beside."""
    below = _below(text)
    if below is not None:
        return None if below["code"] is None else str(int(below["code"])), _said_above(text, below)
    match = _exit_line(text[:_HEAD], text[-_TAIL:])
    if match is None:
        return None, text
    before, _, after = text.partition(match[0])
    return str(int(match["code"] or match["tag"])), (after.strip() or before.strip()).removeprefix("Output:").strip()


def _below(text: str) -> re.Match[str] | None:
    """What a client wrote below a command's output. text: without blanks at its end."""
    return _BELOW.search(text[-_LONGEST_BELOW:]) if "PGID: " in text[-32:] else None  # nearly never


def _said_above(text: str, below: re.Match[str]) -> str:
    """What stands above those lines, without the call's own arguments, which qwen-code repeats."""
    said = text[: -len(below[0])]
    if said.startswith("Command: "):
        said = said.partition("\nOutput: ")[2] or said
    return said.removeprefix("Output: ").strip()


def _exit_line(head: str, tail: str) -> re.Match[str] | None:
    """The exit status in a text's first lines or the last two. head, tail: its ends, most of which hold no word of it."""
    if not (_tells_exit(head.lower()) or _tells_exit(tail.lower())):
        return None
    lines = [*head.split("\n", 4)[:4], *tail.rsplit("\n", 2)[-2:]]
    return next((match for line in lines if len(line) < _EXIT_LINE and (match := _EXIT.match(line))), None)


def _found_nothing(status: str | None, said: str) -> bool:
    """1 and not a word is the answer of a search that found nothing, whatever the client makes of it."""
    return status == "1" and _NONE.fullmatch(said) is not None


def _under_way(text: str, report: _Report | None) -> bool:
    if report is not None:
        return len(text) <= _LONGEST_STATUS and _has_status(msgspec.json.decode(text), _NESTED)
    return _waits(_small(text[:_HEAD]))


def _waits(head: str) -> bool:
    """Whether a text begins with words that say so, or holds a line or a column that does. head: its beginning in small letters."""
    return _shows_status(head) or _UNDER_WAY.match(head) is not None


def _shows_status(head: str) -> bool:
    """Whether a text holds a line or a column of a status that is not the last one."""
    if not ("ing" in head or "progress" in head or ("q" in head and "queued" in head) or "no new output" in head):  # nearly always
        return False
    return _holds(head, _STATUS_WORDS) and (_STATUS_LINE.search(head) is not None or _COLUMN.search(head) is not None)


def _tells_exit(text: str) -> bool:
    """Whether a word that any exit status goes with stands in a text in small letters."""
    return "exit" in text or "code" in text or "status" in text


def _holds(text: str, words: Sequence[str]) -> bool:
    for word in words:  # noqa: SIM110 a generator would take three times as long
        if word in text:
            return True
    return False


def _has_status(said: Any, depth: int) -> bool:
    """Whether an object says of itself, of one that it holds, or of a job that it lists, that it is under way.

    What stands in any other list is one of many: a board of tasks always has some that are in progress.
    """
    if not isinstance(said, dict) or not depth:
        return False
    return any(_is_status(key, value, depth) for key, value in said.items())


def _is_status(key: str, value: Any, depth: int) -> bool:
    match value:
        case str():
            return _STATUS_WORD.fullmatch(value.strip()) is not None and _STATUS_KEY.fullmatch(key) is not None
        case list():
            return _JOBS_KEY.fullmatch(key) is not None and any(_has_status(job, 1) for job in value[:_JOBS])
        case _:
            return _has_status(value, depth - 1)


def output_text(content: bytes) -> str:
    """What a command said itself, without what its client wrote around it; all of any other result."""
    text = text_of(content).strip()
    below = _below(text)
    if below is not None:
        return _said_above(text, below)
    if _ABOVE.match(text) is None:
        return text
    _, found, said = f"{text}\n".partition("\nOutput:\n")
    return said.strip() if found else text


def error_text(content: bytes) -> str:
    """What of a failed result tells whether two failures are the same: the last line of a traceback, else the first line if it says enough.

    Of a result without such a line: all of it.
    """
    text = text_of(content).strip()
    below = _below(text)
    if below is not None:
        text = _said_above(text, below)
    if text.startswith("{"):
        report = _report(text)
        said = None if report is None else report.error
        if isinstance(said, dict):
            said = said.get("message")
        return said if isinstance(said, str) and said else text
    if "Traceback (most recent call last" in text[:_HEAD]:
        lines = [line for line in text[-_LONGEST_LINE:].split("\n") if _RAISED.match(line)]
        return lines[-1] if lines else text
    first = text.split("\n", 1)[0]
    return first if _TELLING < len(first) <= _LONGEST_LINE and _FAILURE.match(first.lower()) and not _EXIT.match(first) else text


_RAISED = re.compile(r"[A-Za-z_][\w.]{0,100}(?:Error|Exception|Interrupt|Exit|Warning|Failure)?\b:\ ")
_LONGEST_LINE = 2_048
_TELLING = 24  # characters; a shorter first line ("Error:") says nothing yet
