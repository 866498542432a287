"""The configuration: `config.yaml` read, checked and made into one frozen value.

Pure: the caller hands over the text and the environment. `document` reads the text, `shape` has the keys, `values` what they may
hold; here they meet, and what does not fit is said in plain words. The program itself runs on values made from a `Config`
(`policy.policy_of`).
"""

import json
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic_core import ErrorDetails

from proxy.config.document import Document, Path, read
from proxy.config.shape import Config, PolicyConfig, Rungs, ToolConfig, UpstreamConfig
from proxy.config.values import masked, shown
from proxy.errors import ConfigError

__all__ = ["Config", "PolicyConfig", "Rungs", "ToolConfig", "UpstreamConfig", "dump", "load", "load_dumped", "masked", "schema", "value_of"]

# Keys and detectors of the design that come with a later version.
_LATER = frozenset(
    {
        *("teams", "prices", "timezone", "open", "admin_key", "cost_usd", "unpriced", "holdout"),
        *("scattered_call", "unknown_tool", "repeated_error", "tool_failures", "repeated_output", "poll", "repeated_text"),
        *("empty_output", "truncated_output", "tool_markup"),
    }
)
_VARIABLE_KEY = re.compile(r"\$\{\w+(?::-(?:passthrough)?)?\}")
_PASSWORD = re.compile(r"//[^/@\s]*:(?P<password>[^/\s]+)@")


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
            below = detail.get("ctx", {}).get("below")
            document.add_fault((*detail["loc"], below) if below else detail["loc"], _plain(detail))
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
    """Keys and passwords come from variables alone, and a key stays text even if it looks like a number."""
    for path, scalar in document.scalars.items():
        match path:
            case ("upstreams", str(name), "api_key"):
                if scalar.raw != "passthrough" and not _VARIABLE_KEY.fullmatch(scalar.raw):
                    document.add_fault(path, "a key must not stand in the file; take it from a variable, as in ${OPENAI_API_KEY}")
                document.values["upstreams"][name]["api_key"] = scalar.text
            case ("store", "url") | ("upstreams", str(), "proxy"):
                found = _PASSWORD.search(scalar.raw)
                if found and _VARIABLE_KEY.sub("", found["password"]):
                    document.add_fault(path, "a password must not stand in the file; take it from a variable, as in ://:${PASSWORD}@host")


def _section_at(path: Path) -> type[BaseModel]:
    """The section whose keys stand at `path`."""
    kind: Any = Config
    for step in path:
        is_section = isinstance(kind, type) and issubclass(kind, BaseModel)
        kind = kind.model_fields[str(step)].annotation if is_section else get_args(kind)[-1]
    assert isinstance(kind, type) and issubclass(kind, BaseModel)
    return kind


def _unknown(path: Path) -> str:
    *place, key = path
    known = list(_section_at(tuple(place)).model_fields)
    if key in _LATER or path == ("policy", "models"):
        return "not in this version; take it out"
    near = get_close_matches(str(key), known, n=1)
    here = ", ".join(known)
    return f"unknown key; did you mean {near[0]}? Known here: {here}" if near else f"unknown key; known here: {here}"


_PLAIN: dict[str, Callable[[ErrorDetails], str]] = {
    "fault": lambda detail: detail["msg"],
    "extra_forbidden": lambda detail: _unknown(detail["loc"]),
    "missing": lambda detail: f"missing; every entry needs it, such as {detail['loc'][-1]}: https://api.openai.com/v1",
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
