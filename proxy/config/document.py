"""The text of a configuration file as plain values: YAML, `${VAR}` and line numbers.

Knows nothing of any key's meaning; that is `shape`. Variables are put in after parsing, so that a value cannot add YAML. Only
what a configuration needs is read: mappings, lists, text, whole and decimal numbers, booleans and null. Tags, merge keys, dates,
octal and sexagesimal numbers are not (YAML 1.1 would make 90 of `1:30` and 8 of `010` without a word).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from proxy.errors import ConfigError

Path = tuple[str | int, ...]

MAX_CHARS = 1 << 18
MAX_VALUES = 10_000  # an alias counts each time it is used: a few lines of them can stand for billions of values
MAX_DEPTH = 32

_VARIABLE = re.compile(r"\$\$|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^${}]*))?\}|\$\{")
_TAG = "tag:yaml.org,2002:"


class _Broken:
    """Stands for a value that already has a fault, so that nothing else is said about it."""


BROKEN = _Broken()


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with the file. line: from 1, None when the value did not come from the file. given: it came by an option."""

    path: Path
    message: str
    line: int | None = None
    given: bool = False

    def __str__(self) -> str:
        place = "".join(f"[{step}]" if isinstance(step, int) else f".{_quoted(step)}" for step in self.path).removeprefix(".")
        return f"{place or 'the file'}: {self.message}" + (
            " (given by an option)" if self.given else f" (line {self.line})" if self.line else ""
        )


def _quoted(key: str) -> str:
    return key if re.fullmatch(r"[\w-]{1,80}", key) else repr(key[:80])


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single value: `raw` as the file has it, `text` with its variables put in."""

    raw: str
    text: str


@dataclass(frozen=True, slots=True)
class Document:
    """A file's values by key, with the line and the text of each, and what is wrong with them so far."""

    values: dict[str, Any] = field(default_factory=dict)
    lines: dict[Path, int] = field(default_factory=dict)
    scalars: dict[Path, Scalar] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    given: list[Path] = field(default_factory=list)

    def add_fault(self, path: Path, message: str) -> None:
        """Notes a fault at the line of its key, or of the nearest key around it. A broken value gets no second one."""
        if any(fault.path == path[: len(fault.path)] for fault in self.faults if fault.path):
            return
        if any(path[: len(put)] == put or (put[: len(path)] == path and path not in self.lines) for put in self.given):
            self.faults.append(Fault(path, message, given=True))
            return
        around = (path[:length] for length in range(len(path), 0, -1))
        self.faults.append(Fault(path, message, next((self.lines[part] for part in around if part in self.lines), None)))

    def value_at(self, path: Path) -> object:
        """The value that stands at a path of the file."""
        value: Any = self.values
        for step in path:
            value = value[step]
        return value

    def set_text(self, path: Path) -> None:
        """Takes the scalar at `path` for text, whatever it looks like."""
        around: Any = self.value_at(path[:-1])
        around[path[-1]] = self.scalars[path].text

    def put(self, path: tuple[str, ...], value: object) -> None:
        """Puts what an option says in the place of the value at `path`, and forgets all that was noted about the one in the file."""
        self.given.append(path)
        for notes in (self.lines, self.scalars):
            for noted in [noted for noted in notes if noted[: len(path)] == path]:
                del notes[noted]
        self.faults[:] = [fault for fault in self.faults if fault.path[: len(path)] != path]
        target: Any = self.values
        for step in path[:-1]:
            if target.get(step) is None:
                target[step] = {}
            target = target[step]
            if not isinstance(target, dict):
                return  # what stands here instead of a mapping is itself a fault
        target[path[-1]] = value


def read(text: str, env: Mapping[str, str]) -> Document:
    """Reads a file's text, with variables from `env`. Raises `ConfigError` when it is not readable as a whole."""
    if len(text) > MAX_CHARS:
        raise ConfigError(f"the file: {len(text)} characters are too many for a configuration; use at most {MAX_CHARS}")
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
    except RecursionError:
        raise ConfigError(f"the file: nested too deeply; use at most {MAX_DEPTH} levels") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"the file: {_explain(error)}") from None
    document = Document()
    if node is None or node.tag == f"{_TAG}null":
        return document
    if not isinstance(node, yaml.MappingNode):
        raise ConfigError("the file: not a mapping; write keys such as 'server:' and 'policy:' at its top level")
    values = _Reader(loader, env, document).value(node, ())
    if isinstance(values, dict):
        document.values.update(values)
    return document


class _Loader(yaml.SafeLoader):
    """A loader used for its parser and its guess at what a plain scalar is; no value is ever constructed by it."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - the base class declares it so

    def kind(self, text: str) -> str:
        """The tag that `text` has as a plain scalar."""
        return str(self.resolve(yaml.ScalarNode, text, (True, False)))  # type: ignore[no-untyped-call]


_NUMBER = "-+0123456789."
for _name, _pattern, _first in (
    ("null", r"(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("bool", r"(?:yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF)$", list("yYnNtTfFoO")),
    ("int", r"[-+]?(?:0|[1-9][0-9_]*)$", list(_NUMBER)),
    ("float", r"[-+]?(?:(?:[0-9][0-9_]*)?\.[0-9]+|[0-9][0-9_]*\.)(?:[eE][-+]?[0-9]+)?$", list(_NUMBER)),
    ("float", r"(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$", list("-+.")),
):
    _Loader.add_implicit_resolver(f"{_TAG}{_name}", re.compile(_pattern), _first)

_SCALARS: dict[str, Callable[[str], object]] = {
    f"{_TAG}str": str,
    f"{_TAG}null": lambda text: None,
    f"{_TAG}bool": lambda text: text.lower() in {"yes", "true", "on"},
    f"{_TAG}int": lambda text: int(text.replace("_", "")),
    f"{_TAG}float": lambda text: float(text.replace("_", "").replace(".inf", "inf").replace(".nan", "nan")),
}


class _Reader:
    """Turns parsed nodes into values, path by path, and collects what is wrong with them."""

    def __init__(self, loader: _Loader, env: Mapping[str, str], document: Document) -> None:
        self._loader = loader
        self._env = env
        self._document = document
        self._seen = 0

    def value(self, node: yaml.Node, path: Path) -> object:
        """The value of a node, or `BROKEN` with a fault noted. Raises `ConfigError` past a limit."""
        self._seen += 1
        if self._seen > MAX_VALUES:
            raise ConfigError(f"the file: more than {MAX_VALUES} values, aliases included; write fewer")
        if len(path) > MAX_DEPTH:
            raise ConfigError(f"the file: nested too deeply; use at most {MAX_DEPTH} levels")
        self._document.lines.setdefault(path, node.start_mark.line + 1)
        match node:
            case yaml.MappingNode(tag="tag:yaml.org,2002:map"):
                return self._mapping(node, path)
            case yaml.SequenceNode(tag="tag:yaml.org,2002:seq"):
                return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
            case yaml.ScalarNode() if node.tag in _SCALARS:
                return self._scalar(node, path)
            case _:
                return self._broken(path, f"the tag {node.tag.replace(_TAG, '!!')!r} is not allowed; write a plain value")

    def _broken(self, path: Path, message: str) -> _Broken:
        self._document.add_fault(path, message)
        return BROKEN

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, object]:
        values: dict[str, object] = {}
        for key, item in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                self._document.faults.append(Fault(path, "a list or mapping cannot be a key; use a name", line))
                continue
            place = (*path, key.value)
            if key.value in values:
                first = self._document.lines[place]
                self._document.faults.append(Fault(place, f"written twice, first on line {first}; keep one of them", line))
                continue
            self._document.lines[place] = line
            values[key.value] = self.value(item, place)
        return values

    def _scalar(self, node: yaml.ScalarNode, path: Path) -> object:
        tag, raw = node.tag, node.value
        text, wrong = expand(raw, self._env)
        if wrong:
            return self._broken(path, wrong)
        whole = _VARIABLE.fullmatch(raw)
        if whole and whole["name"]:
            tag = self._loader.kind(text)
        self._document.scalars[path] = Scalar(raw, text)
        try:
            return _SCALARS[tag](text)
        except ValueError:
            return self._broken(path, f"not readable as {tag.replace(_TAG, '!!')}; write a plain value")


def expand(raw: str, env: Mapping[str, str]) -> tuple[str, str | None]:
    """`raw` with `${VAR}`, `${VAR:-default}` and `$$` put in, and what is wrong with it, if anything. Names no value."""
    wrong: list[str] = []

    def value_of(match: re.Match[str]) -> str:
        name, default = match["name"], match["default"]
        if match[0] == "$$":
            return "$"
        if name is None:
            wrong.append("a '${' that begins no variable; write ${NAME} or ${NAME:-default}, and $$ for a plain $")
        elif default is not None:
            return env.get(name) or default
        elif name not in env:
            wrong.append(f"the environment variable {name} is not set; set it, or give a default as in ${{{name}:-default}}")
        return env.get(name or "", "")

    text = _VARIABLE.sub(value_of, raw)
    return text, "; ".join(dict.fromkeys(wrong)) or None


def _explain(error: yaml.YAMLError) -> str:
    """A parser's complaint in one line, without the piece of the file it would quote (there may be a secret in it)."""
    mark = getattr(error, "problem_mark", None)
    problem = str(getattr(error, "problem", None) or getattr(error, "reason", None) or "not readable")
    if r"'\t'" in problem:
        problem = "a tab where YAML allows only spaces"
    elif problem.endswith("but got '{'"):
        problem += '; between { } or [ ] a variable needs quotes, as in "${NAME}"'
    return f"not valid YAML: {problem}" + (f" (line {mark.line + 1}, column {mark.column + 1})" if mark else "")
