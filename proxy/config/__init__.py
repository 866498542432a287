"""The configuration: `config.yaml` read, checked and made into one frozen value.

Pure: the caller hands over the text and the environment. `document` reads the text, `shape` has the keys, `values` what they may
hold; here they meet, and what does not fit is said in plain words. The program itself runs on values made from a `Config`
(`policy.policy_of`).
"""

import json
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic_core import ErrorDetails

from proxy.config.document import Document, Path, read
from proxy.config.file import Config
from proxy.config.shape import (
    BudgetsConfig,
    DetectorsConfig,
    NudgeConfig,
    PolicyConfig,
    PolicyRules,
    Rungs,
    ToolConfig,
    UpstreamConfig,
    WrapUpConfig,
)
from proxy.config.teams import UNITS, PriceConfig, TeamConfig
from proxy.config.values import is_loopback, masked, shown
from proxy.errors import ConfigError

__all__ = [
    "UNITS",
    "BudgetsConfig",
    "Config",
    "DetectorsConfig",
    "NudgeConfig",
    "PolicyConfig",
    "PolicyRules",
    "PriceConfig",
    "Rungs",
    "TeamConfig",
    "ToolConfig",
    "UpstreamConfig",
    "WrapUpConfig",
    "dump",
    "is_loopback",
    "load",
    "load_dumped",
    "masked",
    "schema",
    "value_of",
]

_VARIABLE_KEY = re.compile(r"\$\{\w+(?::-(?:passthrough)?)?\}")
_VARIABLE = re.compile(r"\$\{\w+(?::-)?\}")
_PASSWORD = re.compile(r"//[^/@\s]*:(?P<user>[^/\s]+)@|[?&](?:\w+_)?password=(?P<option>[^&\s]+)")


def load(text: str, env: Mapping[str, str], overrides: Mapping[tuple[str, ...], object] | None = None) -> Config:
    """The configuration in `text` (YAML), with variables from `env`; `overrides` replace what the file says at their paths.

    Raises `ConfigError` with every fault, one a line: key, value, fix and line. No message holds a key or a password.
    """
    document = read(text, env)
    _check_secrets(document)
    for path, value in (overrides or {}).items():
        document.put(path, value)
    config = None
    try:
        config = Config.model_validate(document.values)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            about = detail.get("ctx", {})
            document.add_fault(about.get("at") or (*detail["loc"], *about.get("below", ())), _plain(detail))
    if document.faults or config is None:
        ordered = sorted(document.faults, key=lambda fault: fault.line or 0)
        raise ConfigError("\n".join(map(str, ordered)))
    return config


def value_of(text: str) -> object:
    """A single value as the file would have it: `5`, `off`, `null`, `{nudge_at: 3}`. Raises `ConfigError` when it cannot stand there."""
    try:
        document = read(f"value: {text}", {})
    except ConfigError:
        document = Document()
    if document.faults or list(document.values) != ["value"]:
        raise ConfigError(f"{shown(text)} is not a value that could stand in the file; use one such as 5, off, null or {{nudge_at: 3}}")
    return document.values["value"]


def schema() -> dict[str, Any]:
    """The JSON schema of the file, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Config.model_json_schema(), "title": "Lastcall"}


def dump(config: Config) -> str:
    """A resolved configuration as text, secrets included, for a worker process: never for a command line or a log."""
    return json.dumps(config.model_dump(exclude_unset=True), default=SecretStr.get_secret_value)


def load_dumped(text: str) -> Config:
    """What `dump` was given: equal in every value, and in what was left to its default."""
    return Config.model_validate(json.loads(text))


def _check_secrets(document: Document) -> None:
    """Keys and passwords come from variables alone, callers' keys also as hashes; and a key stays text even if it looks like a number."""
    for path, scalar in document.scalars.items():
        match path:
            case ("upstreams", str(), "api_key"):
                if scalar.raw != "passthrough" and not _VARIABLE_KEY.fullmatch(scalar.raw):
                    document.add_fault(path, "a key must not stand in the file; take it from a variable, as in ${OPENAI_API_KEY}")
                document.set_text(path)
            case ("teams", str(), "keys", int()) | ("server", "admin_key") if document.value_at(path) is not None:
                if not scalar.raw.startswith("sha256:") and not _VARIABLE.fullmatch(scalar.raw):
                    variable = "${TEAM_KEY}" if path[0] == "teams" else "${LASTCALL_ADMIN_KEY}"
                    document.add_fault(
                        path, f"a key must not stand in the file; write its hash (`lastcall keygen`), or a variable as in {variable}"
                    )
                document.set_text(path)
            case ("teams", str(), "keys"):
                document.add_fault(path, "not a list; write it as [a, b]")  # and not the value, which may be a key
            case ("store", "url") | ("upstreams", str(), "proxy"):
                found = _PASSWORD.finditer(scalar.raw)
                if any(_VARIABLE_KEY.sub("", one["user"] or one["option"] or "") for one in found):
                    scheme = "redis" if path[0] == "store" else "http"
                    document.add_fault(
                        path, f"a password must not stand in the file; take it from a variable, as in {scheme}://user:${{PASSWORD}}@host"
                    )


def _bare(kind: Any) -> Any:
    """A type without what is noted about it, and without None beside it."""
    while get_origin(kind) in (Annotated, Union, UnionType):
        kind = next(part for part in get_args(kind) if part is not NoneType)
    return kind


def _kind_below(kind: Any, step: str | int) -> Any:
    """The type of what stands at one step below a value of type `kind`; None where nothing is known."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        field = kind.model_fields.get(str(step))
        return None if field is None else _bare(field.annotation)
    parts = get_args(kind)
    return _bare(parts[0 if isinstance(step, int) else -1]) if parts else None


def _section_at(path: Path) -> type[BaseModel]:
    """The section whose keys stand at `path`."""
    kind: Any = Config
    for step in path:
        kind = _kind_below(kind, step)
    assert isinstance(kind, type) and issubclass(kind, BaseModel)
    return kind


def _unknown(path: Path) -> str:
    *place, key = path
    section = _section_at(tuple(place))
    known = list(section.model_fields)
    near = get_close_matches(str(key), known, n=1)
    here = ", ".join(known)
    return f"unknown key; did you mean {near[0]}? Known here: {here}" if near else f"unknown key; known here: {here}"


_EXAMPLES = {
    "base_url": "base_url: https://api.openai.com/v1",
    "keys": 'keys: ["sha256:…"]',
    "per": "per: day",
    "input": "input: 1.25",
    "output": "output: 10",
}


_PLAIN: dict[str, Callable[[ErrorDetails], str]] = {
    "fault": lambda detail: detail["msg"],
    "extra_forbidden": lambda detail: _unknown(detail["loc"]),
    "missing": lambda detail: f"missing; every entry needs it, such as {_EXAMPLES[str(detail['loc'][-1])]}",
    "model_type": lambda detail: f"{shown(detail['input'])} is not a mapping; write its keys below it",
    "dict_type": lambda detail: f"{shown(detail['input'])} is not a mapping; write its keys below it",
    "tuple_type": lambda detail: f"{shown(detail['input'])} is not a list; write it as [a, b]",
    "string_type": lambda detail: f"{shown(detail['input'])} is not text; put it in quotes",
    "bool_type": lambda detail: f"{shown(detail['input'])} is neither true nor false; use one of them",
    "literal_error": lambda detail: f"{shown(detail['input'])} is not known here; use {detail.get('ctx', {}).get('expected')}",
}


def _plain(detail: ErrorDetails) -> str:
    """A fault in our own words."""
    said = _PLAIN.get(detail["type"])
    return said(detail) if said else f"{shown(detail['input'])} does not fit here; see docs/configuration.md"
