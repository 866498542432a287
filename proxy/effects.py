"""What a call does: whether it may have changed the world, lets time pass, speaks to somebody, or only keeps notes.

In this order: what the operator said of the tool (`policy.tools`, applied in `counting`), what its definition says (MCP annotations), the
command of a shell tool, the action among its arguments, the words of its name. What none of these tells is `UNKNOWN`: it may have
changed something, so that it never makes a repeat look worse than it is. Names are compared as they are written: look-alike letters,
or names that only contain a known word, are unknown names.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Any

import msgspec

from proxy.bounded import Bounded
from proxy.commands import Line, read_line, sql_reads


class Effect(StrEnum):
    """What a call does. The first four are also what an operator can say of a tool."""

    __hash__ = str.__hash__  # the one of Enum is written in Python

    READ = "read"
    WRITE = "write"
    POLL = "poll"
    BOOKKEEPING = "bookkeeping"
    SEND = "send"
    UNKNOWN = "unknown"

    @property
    def changes(self) -> bool:
        """Whether the world may be another one afterwards."""
        return self in _CHANGING


_CHANGING = (Effect.WRITE, Effect.SEND, Effect.UNKNOWN)


class Deed(msgspec.Struct, frozen=True, gc=False):
    """What one call does. searches: it looks for something, and finding nothing is an answer. program: what a shell is asked to run.

    steps: it moves something on by a little, so that it is made many times to get anywhere.
    """

    effect: Effect
    searches: bool = False
    program: str = ""
    steps: bool = False


_UNKNOWN = Deed(Effect.UNKNOWN)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_READS = _words(
    """get list read search find view show fetch query lookup look describe inspect check status count grep glob ls cat load retrieve browse
    visit scrape crawl extract analyze analyse summarize calculate compute compare validate verify preview explain tree stat head tail
    diff log logs history screenshot snapshot observe measure resolve peek scan monitor info help recall detect estimate evaluate
    receive lint test tests review audit trace debug parse translate geocode forecast weather price quote rank filter references definition
    definitions symbols diagnostics problems outline metadata schema tables columns exists whoami version health"""
)
_SEARCH_WORDS = _words("search find grep glob lookup query list ls fetch get read rg retrieve view browse")
_WRITES = _words(
    """write edit create update delete remove add insert replace patch apply set put move rename copy append save store commit push merge
    upload download install uninstall start stop restart kill deploy click type fill drag navigate goto select submit book
    cancel modify change toggle enable disable register schedule assign close reopen approve reject transfer pay purchase order exchange
    return refund generate draw build publish import export convert clear reset undo redo make mkdir touch drop truncate rollback revert
    checkout stage spawn launch terminate archive restore lock unlock grant revoke mutate upsert sync share upvote vote react star fork"""
)
_SENDS = _words("send message reply respond notify email sms tell say post comment dm chat broadcast publish_message announce")
_WAITS = _words("wait sleep poll watch waiting polling")
_PERSONS = _words("user human person customer question questions followup")  # an answer of theirs takes its time
_NOTES = _words(
    """todo todos todowrite todoread todolist writetodo writetodos readtodos updatetodo updatetodos updatetodolist managetodolist settodos
    updateplan think thinking thinktool thought reflect sequentialthinking recordthought"""
)
_STEPS = _words(
    """scroll swipe press keypress hotkey key keys next previous prev step tick advance pan zoom click tap dblclick doubleclick turn rotate
    walk drive mine dig jump attack roll flip north south east west undo redo back increase decrease increment decrement"""
)
_STEPS_LAST = _words("up down left right forward backward")  # `volume_up`
_AMOUNTS = _words("direction heading angle degrees distance meters metres cm dx dy")  # by how much something is moved
_SHELL_WORDS = _words("bash sh shell zsh terminal exec cmd powershell pwsh command commands console")
_RUNS = _words("run execute exec python ipython jupyter node code script eval evaluate repl interpreter")
_INPUT_WORDS = _words("stdin input keys keystrokes")
_PROCESS_WORDS = _words("terminal process bash shell command task job console background")

_COMMAND_KEYS = ("command", "cmd", "commands", "command_line", "commandLine", "CommandLine", "script", "shell_command")
_ACTION_KEYS = ("action", "operation", "op", "method", "subcommand", "command", "verb", "type")
_PATH_KEYS = ("path", "file_path", "filePath", "file", "filename", "absolute_path", "target_file")
_SQL_KEYS = ("sql", "query", "statement")
_NEW_TEXT_KEYS = ("new_string", "newString", "new_str", "new_text", "newText", "diff", "patch", "content", "contents", "edits", "file_text")
_INPUT_KEYS = ("chars", "input", "data", "text", "keys", "stdin", "keystrokes")

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_APART = re.compile(r"[^A-Za-z0-9]+")


@lru_cache(maxsize=2_048)
def _name_words(name: str) -> tuple[str, ...]:
    """The words of a tool's own name, without its server's: `mcp__github__createIssue` is create, issue."""
    return _split(re.split(r"__|[./:]", name[:200])[-1] or name[:200])


def _split(text: str) -> tuple[str, ...]:
    return tuple([word.lower() for word in _APART.split(_CAMEL.sub("_", text)) if word])


@lru_cache(maxsize=2_048)
def keeps_notes(name: str) -> bool:
    """Whether a tool only keeps the agent's own notes: what those say of progress is the agent's opinion."""
    return "".join(_name_words(name)) in _NOTES


def deed_of(name: str, arguments: str | None, hints: Mapping[str, bool]) -> Deed:
    """What a call does. arguments: as the model wrote them, None where nobody has them any more. hints: `read_only_hints` of a request."""
    if keeps_notes(name):
        return Deed(Effect.BOOKKEEPING)
    hint = hints.get(name)
    deed = _deed(name, arguments)
    if hint is None or deed.effect is Effect.POLL:
        return deed
    if hint:
        return Deed(Effect.READ, searches=deed.searches, program=deed.program)
    return deed if deed.effect.changes and deed.effect is not Effect.UNKNOWN else Deed(Effect.WRITE, program=deed.program)


_DEEDS: Bounded[int, Deed] = Bounded(4_096)


def _deed(name: str, arguments: str | None) -> Deed:
    """What a call does by itself, read once: every look at a trail asks for it, and arguments may be megabytes."""
    key = hash((name, arguments))  # keyed at random by the interpreter; the content itself is not kept
    found = _DEEDS.get(key)
    if found is None:
        found = _DEEDS.keep(key, _read_deed(name, arguments))
    return found


def _read_deed(name: str, arguments: str | None) -> Deed:
    words = _name_words(name)
    given = _object(arguments)
    if _reads_output(words, given):
        return Deed(Effect.POLL)
    line = _command_line(words, given)
    if line is not None:
        return _of_line(line)
    codes = _codes(words, given)
    if any(word in _WAITS for word in (*words[:1], *words[-1:])) or _empty_input(words, given) or any(map(_PAUSE_IN_CODE.search, codes)):
        return Deed(Effect.POLL)
    if any(map(_STEP_IN_CODE.search, codes)):
        return Deed(Effect.WRITE, steps=True)
    deed = _by_action(given) or _by_name(words, given)
    if deed.effect in (Effect.WRITE, Effect.UNKNOWN) and any(key in _AMOUNTS for key in given):
        return Deed(Effect.WRITE, steps=True)
    return Deed(Effect.POLL) if deed.effect is Effect.READ and _has_patience(given) else deed


def _object(arguments: str | None) -> dict[str, Any]:
    if not arguments:
        return {}
    try:
        value = msgspec.json.decode(arguments)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _command_line(words: Iterable[str], given: Mapping[str, Any]) -> Line | None:
    """What the command of a shell tool does; None for other tools. A `command` next to a path is an editor's verb."""
    shell = any(word in _SHELL_WORDS for word in words)
    if not shell and any(key in given for key in _PATH_KEYS):
        return None
    for key in _COMMAND_KEYS:
        match given.get(key):
            case str(text):
                return read_line(text) if text.strip() or not shell else Line(waits=True)  # a look at what runs
            case [*parts] if parts and all(isinstance(part, str) for part in parts):
                return _of_list(key, [str(part) for part in parts])
    texts = [value for value in given.values() if isinstance(value, str)]
    if shell and len(texts) == 1:  # under whatever name, there is nothing else that could be the command
        return read_line(texts[0])
    return Line(changes=True) if shell else None


def _of_list(key: str, parts: list[str]) -> Line:
    """`commands` lists several lines, `command` the words of one, of which a shell's script is a line again."""
    if key == "commands":
        return read_line("\n".join(parts))
    if len(parts) == 3 and parts[1].startswith("-") and parts[1].endswith("c"):
        return read_line(parts[2], 1)
    return read_line(" ".join([part if part.isalnum() else "'" + part.replace("'", "'\\''") + "'" for part in parts]))


def _of_line(line: Line) -> Deed:
    if line.waits:
        return Deed(Effect.POLL, program=line.program)
    return Deed(Effect.WRITE if line.changes else Effect.READ, searches=line.searches, program=line.program)


def _empty_input(words: tuple[str, ...], given: Mapping[str, Any]) -> bool:
    """An empty write to a running process: it only waits for output."""
    if not any(word in _INPUT_WORDS for word in words):
        return False
    sent = [given[key] for key in _INPUT_KEYS if key in given]
    return all(text in ("", None, []) for text in sent)


def _reads_output(words: tuple[str, ...], given: Mapping[str, Any]) -> bool:
    """Whether a tool shows what something that runs has said by now: `BashOutput`, `get_terminal_output`, `read_output`."""
    if words[-1:] != ("output",) or any(key in given for key in _COMMAND_KEYS):
        return False
    return any(word in _PROCESS_WORDS for word in words) or words in (("read", "output"), ("get", "output"))


_PATIENCE = re.compile(r"(?:wait|block)(?:_?(?:time|for|duration|timeout))?(?:_?(?:ms|s|secs?|seconds|millis|minutes))?", re.IGNORECASE)


def _has_patience(given: Mapping[str, Any]) -> bool:
    """Whether a look may take a while by its arguments: `wait_seconds: 20` of a queue."""
    return any(type(value) in (int, float) and value > 0 and _PATIENCE.fullmatch(key) for key, value in given.items())


_PAUSE_IN_CODE = re.compile(r"\b(?:time|asyncio)\.sleep\(|\bsetTimeout\(")
_STEP_IN_CODE = re.compile(r"\.scroll(?:By|To|IntoView)?\(|\bnext\(")
_LONGEST_CODE = 4_096  # characters


def _codes(words: tuple[str, ...], given: Mapping[str, Any]) -> list[str]:
    """The texts that a tool is to run as a program, if it runs any."""
    if not any(word in _RUNS for word in (*words[:1], *words[-1:])):
        return []
    return [value[:_LONGEST_CODE] for value in given.values() if isinstance(value, str)]


def _by_action(given: Mapping[str, Any]) -> Deed | None:
    """What an argument such as `action: read` says."""
    for key in _ACTION_KEYS:
        value = given.get(key)
        if isinstance(value, str) and 0 < len(value) <= 40:
            method = _METHODS.get(value.upper()) if key == "method" else None
            deed = Deed(method) if method is not None else _by_words(_split(value))
            if deed is not None:
                return deed
    return None


_METHODS = {
    **dict.fromkeys(("GET", "HEAD", "OPTIONS"), Effect.READ),
    **dict.fromkeys(("POST", "PUT", "PATCH", "DELETE"), Effect.WRITE),
}


def _by_name(words: tuple[str, ...], given: Mapping[str, Any]) -> Deed:
    statement = next((given[key] for key in _SQL_KEYS if isinstance(given.get(key), str)), None)
    if statement is not None and ("sql" in given or any(word in ("sql", "database", "db") for word in words)):
        return Deed(Effect.READ, searches=True) if sql_reads(statement) else Deed(Effect.WRITE)
    if any(key in given for key in _NEW_TEXT_KEYS) and any(key in given for key in _PATH_KEYS):
        return Deed(Effect.WRITE)
    if words and words[0] in _RUNS:
        return _UNKNOWN
    return _by_words(words) or _UNKNOWN


def _by_words(words: tuple[str, ...]) -> Deed | None:
    """By the verb: the first word, where it is one, else the last one that is."""
    if words[:1] == ("ask",) and any(word in _PERSONS for word in words):
        return Deed(Effect.POLL)
    if len(words) > 1 and words[-1] in _STEPS_LAST and words[0] not in _READS:
        return Deed(Effect.WRITE, steps=True)
    for word in (*words[:1], *reversed(words[1:])):
        if word in _WAITS:
            return Deed(Effect.POLL)
        if word in _SENDS and words[-1] not in _STEPS:  # `send_keys` speaks to nobody
            return Deed(Effect.SEND)
        if word in _STEPS:
            return Deed(Effect.WRITE, steps=True)
        if word in _WRITES:
            return Deed(Effect.WRITE)
        if word in _READS:
            return Deed(Effect.READ, searches=word in _SEARCH_WORDS)
    return None


# ---- what a request says of its tools


class _Annotations(msgspec.Struct, gc=False):
    readOnlyHint: Any = None
    destructiveHint: Any = None
    idempotentHint: Any = None


class _Definition(msgspec.Struct, gc=False):
    name: Any = None
    annotations: _Annotations | None = None


class _Tool(msgspec.Struct, gc=False):
    name: Any = None
    annotations: _Annotations | None = None
    function: _Definition | None = None


_TOOLS = msgspec.json.Decoder(list[_Tool])


def read_only_hints(tools: bytes) -> dict[str, bool]:
    """Which tools of a request's raw `tools` are annotated as only reading (True) or as changing something (False), by name.

    A tool that is said to be destructive, or harmless to repeat, changes something: both hints mean nothing of a tool that only reads.
    """
    if b"Hint" not in tools:
        return {}
    try:
        return dict(_annotated(_TOOLS.decode(tools)))
    except (ValueError, RecursionError):
        return {}


def _annotated(tools: Iterable[_Tool]) -> Iterator[tuple[str, bool]]:
    for tool in tools:
        definition = tool.function
        name = tool.name if definition is None else definition.name
        said = tool.annotations or (definition.annotations if definition is not None else None)
        if said is None or not isinstance(name, str):
            continue
        if isinstance(said.readOnlyHint, bool):
            yield name, said.readOnlyHint
        elif isinstance(said.destructiveHint, bool) or said.idempotentHint is True:
            yield name, False


class Offer(msgspec.Struct):
    """The tools of a request: their names, their raw JSON, and on demand what they say of themselves."""

    names: tuple[str, ...] = ()
    raw: bytes = b""
    _hints: dict[str, bool] | None = None

    @property
    def hints(self) -> dict[str, bool]:
        """`read_only_hints`, read at most once."""
        if self._hints is None:
            self._hints = read_only_hints(self.raw)
        return self._hints


# ---- what of a call's arguments matters

_LABELS = _words(
    """description explanation reason reasoning rationale justification thought thoughts note notes title label display_name
    displayname purpose intent summary toolsummary toolaction why goal tool_call_reason reason_for_call security_risk
    request_id requestid trace_id call_id correlation_id idempotency_key nonce timeout timeout_ms yield_time_ms
    max_output_tokens"""
)


def essence(arguments: str | None) -> str | None:
    """The arguments without labels that tell a person what the call is for; None where they cannot be read or hold nothing else."""
    given = _object(arguments)
    kept = {key: value for key, value in given.items() if key.lower() not in _LABELS}
    return msgspec.json.encode(kept, order="deterministic").decode() if kept else None


def subject(arguments: str | None) -> str:
    """What a call is about: its arguments without labels, spelling, and what is counted up or made at random in them.

    Dates, and the numbers of things (`id`, `issue_number`, …), tell subjects apart; pages, offsets and other amounts do not.
    """
    given = _object(arguments)
    said = {key: _without_counts(key, value) for key, value in given.items() if key.lower() not in _LABELS}
    return msgspec.json.encode(said, order="deterministic").decode() if said else ""


_NUMBERED = re.compile(r"(?:\w*_)?(?:id|number)|\w*[a-z](?:Id|ID|Number)")
_DATE_OR_COUNTED = re.compile(r"(?P<date>\b\d{4}-\d\d-\d\d\b)|\b\w*\d\w*|(?:\./)+|\s+")
_LONGEST_SUBJECT = 2_048  # characters of one argument


def _without_counts(key: str, value: Any) -> Any:
    match value:
        case bool() | None:
            return value
        case int():
            return value if _NUMBERED.fullmatch(key) else 0
        case float():
            return 0
        case str():
            return _uncounted(value)
        case _:
            return _uncounted(msgspec.json.encode(value, order="deterministic").decode())


def _uncounted(text: str) -> str:
    return _DATE_OR_COUNTED.sub(lambda found: found["date"] or "#", text[:_LONGEST_SUBJECT].lower())


class Message(msgspec.Struct, frozen=True, gc=False):
    """A call that speaks to somebody. addressee: its arguments but for the words; words: those, without what is counted up in them."""

    addressee: str
    words: str


def message(arguments: str | None) -> Message | None:
    """The message in a call's arguments; None where they name nobody, or hold no words."""
    given = {key: value for key, value in _object(arguments).items() if key.lower() not in _LABELS}
    texts = {key: value for key, value in given.items() if isinstance(value, str)}
    said = next((key for key in _MESSAGE_KEYS if key in texts), None)
    if said is None or len(given) < 2:
        return None
    words = " ".join(_COUNTED.sub("#", given.pop(said)[:_LONGEST_MESSAGE].lower()).split())
    return Message(msgspec.json.encode(given, order="deterministic").decode(), words)


_MESSAGE_KEYS = ("message", "text", "body", "content", "comment", "prompt", "msg")
_COUNTED = re.compile(r"\b\w*\d\w*")  # tried at the start of words alone: a long one is read once
_LONGEST_MESSAGE = 2_048


@lru_cache(maxsize=2_048)
def speaks(name: str) -> bool:
    """Whether a tool's name says that it sends messages."""
    return any(word in _SENDS for word in _name_words(name))
