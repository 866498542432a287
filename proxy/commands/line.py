"""What a command line does.

Known are the commands that only look; everything else may change something. Lists, pipelines, wrappers (`sudo`, `env`, `timeout`,
`bash -c`, …) and the PowerShell and cmd spellings are seen through. Nothing is run or expanded: what a substitution, a very long line or
a name in look-alike letters does is not known. One pass over the text, no deeper than `_NESTED` shells in each other.
"""

import re
from collections.abc import Callable, Sequence

import msgspec

from proxy.commands.sql import sql_reads
from proxy.commands.table import (
    ALONE,
    ASIDE,
    CHANGING_OPTIONS,
    KEYWORDS,
    LISTING_OPTIONS,
    LOOKS,
    LOOKS_WITH,
    NEUTRAL,
    OPTION_VALUES,
    SEARCHES,
    SHELLS,
    WAITS,
    WAITS_WITH,
    WINDOWS_SHELLS,
    WRAPPERS,
)

_LONGEST = 4_096  # characters; a longer line is a program of its own
_NESTED = 3
_LONGEST_NAME = 80


class Line(msgspec.Struct, frozen=True, gc=False):
    """What a command line does. changes: something may be different afterwards. waits: it lets time pass. searches: it looks for things.

    program: the first that it runs to some purpose, "" if there is none.
    """

    changes: bool = False
    waits: bool = False
    searches: bool = False
    program: str = ""


_UNKNOWN = Line(changes=True)
_LOOKING = Line()
_SEARCHING = Line(searches=True)
_WAITING = Line(waits=True)

# Quotes that never close run to the end; possessive repeats keep the scan linear.
_TOKEN = re.compile(
    r"""
      (?P<quiet>[\d&]?>>?\ ?(?:&\d|/dev/(?:null|stdout|stderr)\b|nul\b|\$null\b)|<\ ?/dev/null\b)
    | (?P<word>(?:[^\s;|&<>(){}'"`\\$]|\\.|'[^']*+(?:'|\Z)|"(?:\\.|[^"\\])*+(?:"|\Z)|\$(?!\()|\$?\{[^{}\s]*+\})++)
    | (?P<inner>\$\(|`|[<>]\()
    | (?P<write>&?>>?\|?)
    | (?P<read><{1,3}-?)
    | (?P<end>[;|&\n(){}]+)
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
_QUOTED = re.compile(r"'([^']*)'?|\"((?:\\.|[^\"\\])*)\"?|\\(.)", re.DOTALL)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_BIN = re.compile(
    r"(?:/(?:usr|opt)(?:/[\w.-]+)*)?/s?bin/|(?:\./)?(?:\.?venv|env)/(?:bin|scripts)/|(?:\./)?node_modules/\.bin/", re.IGNORECASE
)
_AMOUNT = re.compile(r"-?\d+(?:\.\d+)?[smhd]?")


def read_line(text: str, depth: int = 0) -> Line:
    """What a command line does. Linear in the text."""
    if len(text) > _LONGEST or depth > _NESTED:
        return _UNKNOWN
    lists, opaque = _simple_commands(text)
    parts = [_command(words, depth) for words in lists]
    changes = opaque or any(part.changes for part in parts)
    searches = not changes and any(part.searches for part in parts)
    program = next((part.program for part in parts if part.program not in ASIDE), "")
    return Line(changes, any(part.waits for part in parts), searches, program)


def _simple_commands(text: str) -> tuple[list[list[str]], bool]:
    """The words of each simple command, and whether something is written to a file, or put in by a command of its own."""
    lists: list[list[str]] = [[]]
    opaque = skip = False
    for token in _TOKEN.finditer(text):
        kind, said = token.lastgroup, token[0]
        if kind == "word":
            opaque = opaque or ('"' in said and ("$(" in said or "`" in said))
            if not skip:
                lists[-1].append(_bare(said))
            skip = False
        elif kind == "end":
            lists.append([])
            skip = False
        elif kind != "quiet":
            opaque = opaque or kind != "read"
            skip = True  # a file's name, or the first word of what is put in
    return lists, opaque


def _bare(word: str) -> str:
    """A word without its quotes."""
    if "'" not in word and '"' not in word and "\\" not in word:
        return word
    return _QUOTED.sub(lambda match: match[1] or match[2] or match[3] or "", word)


def _command(words: Sequence[str], depth: int) -> Line:
    """What one simple command does, its wrappers taken off."""
    words = _unwrapped(words)
    if not words:
        return _LOOKING
    verb, arguments = _verb(words[0]), words[1:]
    if verb in SHELLS:
        return _script(arguments, depth)
    if verb in WINDOWS_SHELLS:
        return _windows_script(WINDOWS_SHELLS[verb], arguments, depth)
    line = _SPECIAL[verb](arguments) if verb in _SPECIAL else _known(verb, arguments)
    return msgspec.structs.replace(line, program=verb[:_LONGEST_NAME])


def _known(verb: str, arguments: Sequence[str]) -> Line:
    """By the tables."""
    if verb == "timeout":  # of Windows; the one of Unix is a wrapper
        return _WAITING
    options = {argument.split("=", 1)[0] for argument in arguments}
    if options & CHANGING_OPTIONS:
        return _UNKNOWN
    if verb in WAITS or ("--watch" in options and verb in LOOKS_WITH) or _begins(verb, arguments, WAITS_WITH.get(verb, frozenset())):
        return _WAITING
    if verb in SEARCHES:
        return _SEARCHING
    return _LOOKING if verb in LOOKS or _begins(verb, arguments, LOOKS_WITH.get(verb, frozenset())) else _UNKNOWN


def _verb(word: str) -> str:
    return _BIN.sub("", word, count=1).lower().removesuffix(".exe")


def _unwrapped(words: Sequence[str]) -> Sequence[str]:
    """The words from the command itself on: without keywords, assignments and programs that only run another."""
    at = 0
    while at < len(words):
        verb = _verb(words[at])
        if verb in NEUTRAL:
            return ()
        if verb in KEYWORDS or _ASSIGNMENT.match(words[at]):
            at += 1
        elif verb in WRAPPERS and not (verb == "timeout" and words[at + 1 : at + 2] and words[at + 1].lower() == "/t"):
            at = _past_options(verb, words, at + 1)
        else:
            return words[at:]
    return ()


def _past_options(verb: str, words: Sequence[str], at: int) -> int:
    """Where a program's own options, and the amount of time or niceness after them, end."""
    taking = OPTION_VALUES.get(verb, ())
    while at < len(words) and (words[at].startswith("-") or _AMOUNT.fullmatch(words[at])):
        at += 2 if words[at] in taking else 1
    return at


def _script(arguments: Sequence[str], depth: int) -> Line:
    for at, argument in enumerate(arguments):
        if argument.startswith("-") and not argument.startswith("--") and argument.endswith("c"):
            return read_line(arguments[at + 1], depth + 1) if at + 1 < len(arguments) else _UNKNOWN
        if not argument.startswith("-"):
            break
    return _UNKNOWN


def _windows_script(switches: Sequence[str], arguments: Sequence[str], depth: int) -> Line:
    for at, argument in enumerate(arguments):
        if argument.lower() in switches:
            return read_line(" ".join(arguments[at + 1 :]), depth + 1)
    return _UNKNOWN


def _begins(verb: str, arguments: Sequence[str], known: frozenset[str]) -> bool:
    """Whether a command's own words are among those known: one, or two of them."""
    if not known:
        return False
    words = arguments[_past_options(verb, arguments, 0) if verb in OPTION_VALUES else 0 :]
    if not words:
        words = arguments
    first = words[0] if words else ""
    if f"{verb} {first}" in ALONE:
        return all(word.split("=", 1)[0] in LISTING_OPTIONS for word in words[1:])
    return "*" in known or first in known or " ".join(words[:2]) in known


# ---- commands that look or change by their options


def _find(arguments: Sequence[str]) -> Line:
    if any(word in ("-delete", "-ok", "-okdir") or word.startswith("-fprint") or word.startswith("-fls") for word in arguments):
        return _UNKNOWN
    for at, word in enumerate(arguments):
        if word in ("-exec", "-execdir"):
            run = _command([other for other in arguments[at + 1 :] if other not in (";", "+")], _NESTED)
            return Line(run.changes, run.waits, not run.changes)
    return _SEARCHING


_SED_WRITES = re.compile(r"(?:^|[;}/|#,\s])[wWe]\s*(?:\s\S|$)")


def _sed(arguments: Sequence[str]) -> Line:
    in_place = any(word.startswith(("-i", "--in-place")) or (word[:1] == "-" and word[:2] != "--" and "i" in word) for word in arguments)
    return _UNKNOWN if in_place or any(_SED_WRITES.search(word) for word in arguments if word[:1] not in "-/.") else _LOOKING


_AWK_WRITES = re.compile(r"print[^;}\n]*>|system\s*\(|\|\s*\"|getline")


def _awk(arguments: Sequence[str]) -> Line:
    return _UNKNOWN if any(_AWK_WRITES.search(word) or word == "-i" for word in arguments) else _LOOKING


_SENDING = ("-d", "--data", "-F", "--form", "-T", "--upload-file", "-o", "-O", "--output", "--remote-name", "--json", "-K", "--config")


def _curl(arguments: Sequence[str]) -> Line:
    method = "GET"
    for at, word in enumerate(arguments):
        if word in ("-X", "--request"):
            method = arguments[at + 1].upper() if at + 1 < len(arguments) else "?"
        elif word.startswith("-X"):
            method = word[2:].upper()
        elif word in ("-o", "--output") and arguments[at + 1 : at + 2] in (["/dev/null"], ["-"], ["NUL"]):
            continue
        elif word.startswith("--data") or word.split("=", 1)[0] in _SENDING:
            return _UNKNOWN
    return _LOOKING if method in ("GET", "HEAD", "OPTIONS") else _UNKNOWN


def _wget(arguments: Sequence[str]) -> Line:
    shown = "--spider" in arguments or any(word.endswith("O-") or word == "-" for word in arguments)
    return _LOOKING if shown else _UNKNOWN


def _tail(arguments: Sequence[str]) -> Line:
    follows = any(word in ("-f", "-F", "--follow", "-wait") or re.fullmatch(r"-\d*[fF]\d*", word) for word in arguments)
    return _WAITING if follows else _SEARCHING


def _tee(arguments: Sequence[str]) -> Line:
    return _LOOKING if all(word.startswith("-") or word == "/dev/null" for word in arguments) else _UNKNOWN


def _without_operands(arguments: Sequence[str]) -> Line:
    """Looks while it is given options or formats only: `hostname`, `date +%s`."""
    return _LOOKING if all(word.startswith(("-", "+")) and word not in ("-s", "--set") for word in arguments) else _UNKNOWN


def _network(arguments: Sequence[str]) -> Line:
    changing = {"add", "del", "delete", "set", "flush", "change", "replace", "up", "down"}
    return _UNKNOWN if changing & set(arguments) else _LOOKING


def _unless(*options: str) -> Callable[[Sequence[str]], Line]:
    """Looks, but for these options."""
    return lambda arguments: _UNKNOWN if any(word.startswith(options) for word in arguments) else _LOOKING


def _database(arguments: Sequence[str]) -> Line:
    statements = [word for word in arguments if " " in word.strip() or word.startswith(("\\", "."))]
    return _LOOKING if statements and all(sql_reads(word) for word in statements) else _UNKNOWN


_SPECIAL: dict[str, Callable[[Sequence[str]], Line]] = {
    "find": _find,
    "sed": _sed,
    "gsed": _sed,
    **dict.fromkeys(("awk", "gawk", "mawk"), _awk),
    "curl": _curl,
    "wget": _wget,
    "tail": _tail,
    "tee": _tee,
    "sort": _unless("-o", "--output"),
    "yq": _unless("-i", "--inplace"),
    "dmesg": _unless("-c", "-C", "--clear"),
    **dict.fromkeys(("date", "hostname"), _without_operands),
    **dict.fromkeys(("ip", "ifconfig"), _network),
    **dict.fromkeys(("psql", "sqlite3", "mysql", "duckdb"), _database),
}
