"""Every family of leaked markup that is known (tests/cases/markup_formats.jsonl), and the texts that only look like it."""

import json
from pathlib import Path
from typing import Any

import pytest

from proxy.markup import LONGEST_SIGN, Scanner, without_markup

CASES = Path(__file__).parents[2] / "cases"


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (CASES / name).read_text().splitlines()]


FAMILIES = rows("markup_formats.jsonl")
LOOK_ALIKES = rows("markup_negatives.jsonl")
TOOLS = frozenset({"Bash", "read", "bash", "x", "get_weather", "exec", "exec_command", "list_directory", "read_file", "search"})
PROSE = "Let me look into it.\n\n"


def family(row: dict[str, Any]) -> str:
    return str(row["id"])


@pytest.mark.parametrize("names", [frozenset[str](), TOOLS], ids=["no tools", "tools"])
@pytest.mark.parametrize("row", FAMILIES, ids=family)
def test_each_family_is_caught_whole(row: dict[str, Any], names: frozenset[str]) -> None:
    """Alone and after prose, nothing of it is left and all of the prose."""
    for prose in ("", PROSE):
        clean, found = without_markup(prose + row["example"], names)
        assert (clean, found.leaked) == (prose, True)


@pytest.mark.parametrize("row", FAMILIES, ids=family)
def test_each_family_is_caught_when_cut_anywhere(row: dict[str, Any]) -> None:
    """In two pieces, at every place there is, and character by character; never is more held back than a sign is long."""
    text = PROSE + row["example"]
    for at in range(len(text) + 1):
        scanner = Scanner()
        first = scanner.feed(text[:at])
        assert PROSE.startswith(first) or first == PROSE
        assert at - len(first) <= LONGEST_SIGN or scanner.cut
        assert (first + scanner.feed(text[at:]) + scanner.finish(), scanner.leaked) == (PROSE, True)
    scanner = Scanner()
    assert "".join(scanner.feed(char) for char in text) + scanner.finish() == PROSE


@pytest.mark.parametrize(
    "quote",
    ["```\n{}\n```", "~~~xml\n{}\n~~~", "- like so:\n  ```\n  {}\n  ```", "```\n{}", "<!-- {} -->", "<![CDATA[{}]]>"],
    ids=["fence", "tildes", "fence in a list", "open fence", "comment", "cdata"],
)
@pytest.mark.parametrize("row", [row for row in FAMILIES if "```" not in row["example"]], ids=family)
def test_each_family_is_left_alone_where_it_is_shown(row: dict[str, Any], quote: str) -> None:
    """In a fence, be it open at the end, in a comment and in character data, every line of it."""
    text = f"The format is\n{quote.replace('{}', row['example'])}"
    clean, found = without_markup(text, TOOLS)
    assert (clean, found.cut) == (text, False)


@pytest.mark.parametrize("quote", ["`{}`", "``{}``", 'It says "{}" there.', "It says \u201c{}\u201d there.", "> {}", "'{}'"])
@pytest.mark.parametrize("row", [row for row in FAMILIES if row["strength"] == "strong"], ids=family)
def test_a_token_that_is_quoted_is_left_alone(row: dict[str, Any], quote: str) -> None:
    """In inline code, in quotation marks of every kind, in a block quote."""
    for token in row["tokens"]:
        if '"' in token and '"' in quote:
            continue
        text = f"Models write\n{quote.format(token)}\nbefore a call."
        assert without_markup(text)[0] == text


@pytest.mark.parametrize("row", [row for row in LOOK_ALIKES if row["expected"] == "keep"], ids=family)
def test_look_alikes_are_kept(row: dict[str, Any]) -> None:
    """Byte for byte."""
    clean, found = without_markup(row["text"], frozenset(row["tools_offered"]))
    assert (clean, found.cut) == (row["text"], False)


def test_leaks_in_answers() -> None:
    """The reported ones: with a stray word before, without a wrapper, with a fence inside."""
    for row in LOOK_ALIKES:
        if row["expected"] == "leak" and row["id"] not in ("leak-split", "leak-trailing-closer"):
            assert without_markup(row["text"], frozenset(row["tools_offered"]))[1].leaked, row["id"]


def test_a_closer_at_the_end_goes_without_the_answer() -> None:
    """It is no call: the answer stands."""
    clean, found = without_markup("All done.]<]minimax[>[</tool_call>")
    assert (clean, found.cut, found.leaked) == ("All done.", True, False)


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>It is 5.<|return|>", "It is 5."),
        ("<|open|>think<|sep|>Hm.<|close|>think<|sep|><|open|>response<|sep|>It is 5.<|close|>response<|sep|>", "It is 5."),
        ("<|channel>thought\nHm.<channel|>It is 5.", "It is 5."),
        ("It is 5.</think>\n", "It is 5."),
        ("It is 5.<|im_end|>", "It is 5."),
        ("<|START_THINKING|>Hm.<|END_THINKING|><|START_RESPONSE|>It is 5.<|END_RESPONSE|>", "It is 5."),
        ("It is 5.<\uff5cDS", "It is 5."),
    ],
)
def test_frames_and_thoughts_go_and_the_answer_stays(text: str, clean: str) -> None:
    """They are no calls, and nothing is asked again for them."""
    found = without_markup(text)
    assert (found[0], found[1].cut, found[1].leaked) == (clean, True, False)


@pytest.mark.parametrize("opener", ["<tool_call>", "<think>"])
def test_a_closer_that_an_opener_was_shown_for_stays(opener: str) -> None:
    """A text about tags ends with one."""
    text = f"Wrap it in {opener} and {opener.replace('<', '</')}"
    assert without_markup(text)[0] == text


@pytest.mark.parametrize(
    ("text", "tool"),
    [
        ('<invoke name="init">\n<parameter name="x">1</parameter>\n</invoke>', "init"),
        ("<tool>read</tool>", "read"),
        ('{"name": "read", "parameters": {"path": "a"}}', "read"),
        ("call:read{path:a}", "read"),
        ("[Calling tool: read]", "read"),
    ],
)
def test_weak_signs_need_a_tool_that_is_known(text: str, tool: str) -> None:
    """What could be an answer of its own is one unless it names a tool."""
    assert without_markup(text, frozenset({tool}))[1].leaked
    assert without_markup(text, frozenset({f"functions.{tool}", tool}))[1].leaked
    assert without_markup(text, frozenset({"other"}))[0] == text


@pytest.mark.parametrize(
    "text", ["``", "~", "a\n`~`x", "``\n", "~~\n~~~\n<|python_tag|>x\n~~~", "`" * 60 + "\n<|python_tag|>\n" + "`" * 60]
)
def test_ticks_that_may_become_a_fence(text: str) -> None:
    """What is no fence in the end is text; what is one hides what it shows."""
    assert without_markup(text)[0] == text


def test_text_after_a_closed_call_is_kept() -> None:
    """Only what lies between its markers goes; two calls in a row are one."""
    call = '<tool_call>\n{"name": "read"}\n</tool_call>'
    assert without_markup(f"Before.\n{call}\n{call}\nAfter.")[0] == "Before.\n\nAfter."
    assert without_markup(f"Before.\n{call} After, with <b>tags</b> of its own.")[0] == "Before.\n After, with <b>tags</b> of its own."
    assert without_markup(f"{call}{' ' * 400}After.")[0] == f"{' ' * 400}After."
