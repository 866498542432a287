"""Calls read back from the markup that spells them out."""

import json
from pathlib import Path
from typing import Any

import pytest

from proxy.markup import spelled, without_markup

ROWS = [json.loads(line) for line in (Path(__file__).parents[2] / "cases" / "markup_formats.jsonl").read_text().splitlines()]
EXAMPLES = {row["id"]: row["example"] for row in ROWS}
ANY: dict[str, dict[str, Any]] = {
    name: {} for name in ("Bash", "read", "bash", "x", "get_weather", "exec", "exec_command", "list_directory", "search")
}
TYPED: dict[str, dict[str, Any]] = {
    "f": {
        "properties": {"a": {"type": "string"}, "n": {"type": "integer"}, "l": {"type": ["array", "null"]}, "o": {}, "z": {"type": 7}},
        "required": ["a"],
    }
}


@pytest.mark.parametrize(
    ("family", "call"),
    [
        ("dsml-v4", ("Bash", {"command": "pwd"})),
        ("deepseek-v3", ("get_weather", {"city": "Paris"})),
        ("hermes-qwen", ("read", {"path": "a"})),
        ("qwen3-coder", ("exec_command", {"cmd": "ls"})),
        ("glm", ("get_weather", {"city": "Paris"})),
        ("kimi-k2", ("list_directory", {"path": "/p"})),
        ("minimax-m2", ("exec", {"command": "ls"})),
        ("claude", ("Bash", {"command": "ls"})),
        ("harmony", ("get_weather", {"city": "SF"})),
        ("llama3", ("get_weather", {"city": "SF"})),
        ("mistral", ("get_weather", {"city": "Paris"})),
        ("cohere", ("x", {})),
    ],
)
def test_a_whole_call_is_read_back(family: str, call: tuple[str, dict[str, Any]]) -> None:
    """From what was taken out of the text."""
    taken = "".join(without_markup(EXAMPLES[family], frozenset(ANY))[1].taken)
    assert spelled(taken, ANY) == [call]


def test_several_calls_keep_their_order() -> None:
    """Of one message, whatever stands between them."""
    one = '<tool_call>\n{"name": "read", "arguments": {"n": %d}}\n</tool_call>\n'
    taken = "".join(without_markup("".join(one % n for n in range(3)))[1].taken)
    assert spelled(taken, ANY) == [("read", {"n": n}) for n in range(3)]
    assert spelled('[TOOL_CALLS] [{"name": "read", "arguments": "{\\"a\\": 1}"}, {"name": "x"}]', ANY) == [("read", {"a": 1}), ("x", {})]


def invoke(**members: str) -> str:
    inner = "".join(f'<parameter name="{key}">{value}</parameter>\n' for key, value in members.items())
    return f'<invoke name="f">\n{inner}</invoke>'


def test_values_are_of_the_types_that_the_schema_wants() -> None:
    """Text stays text where it says so; else what it is as JSON."""
    members = {"a": "5", "n": "5", "l": "[1]", "o": '{"x": 1}', "z": "true", "unknown": "some text"}
    expected = {"a": "5", "n": 5, "l": [1], "o": {"x": 1}, "z": True, "unknown": "some text"}
    assert spelled(invoke(**members), TYPED) == [("f", expected)]
    assert spelled(invoke(a="1", l="null"), TYPED) == [("f", {"a": "1", "l": None})]
    quoted = '<|DSML|invoke name="f"><|DSML|parameter name="o" string="true">5</|DSML|parameter></|DSML|invoke>'
    assert spelled(quoted, {"f": {}}) == [("f", {"o": "5"})]


@pytest.mark.parametrize(
    "markup",
    [
        invoke(n="5"),
        invoke(a="x", n="five"),
        invoke(a="x", n="true"),
        invoke(a="x", l='"no"'),
        '<invoke name="other"></invoke>',
        invoke(a="x") + '<invoke name="other"></invoke>',
        '<tool_call>{"name": "f", "arguments": {"a": "x"',
        '<tool_call>{"name": 5}</tool_call>',
        '<tool_call>{"name": "f", "arguments": [1]}</tool_call>',
        "f[ARGS]{broken",
        "[ARGS][1]",
        "<tool_call>",
        "{" * 5000,
        '<invoke name="f">' * 2000,
    ],
)
def test_what_does_not_fit_spells_nothing(markup: str) -> None:
    """Missing or wrong arguments, tools that are not offered, what was cut short."""
    assert spelled(markup, TYPED) is None
