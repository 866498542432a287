"""Reading the file's text: what is no configuration, whatever it may hold, gets a clear error and nothing more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.config import load
from proxy.errors import ConfigError

BOMB = "a: &a [x, x]\n" + "".join(f"{name}: &{name} [{', '.join(4 * [f'*{chr(ord(name) - 1)}'])}]\n" for name in "bcdefghijkl")


def faults(text: str) -> list[str]:
    """The lines of the error that a file gets."""
    with pytest.raises(ConfigError) as caught:
        load(text, {})
    return str(caught.value).splitlines()


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (BOMB, "more than 10000"),
        ("a: &a [*a]", "nested too deeply"),
        ("[" * 20_000, "nested too deeply"),
        ("[" * 1_000_000, "too many for a configuration"),
        ("a: " + "{b: " * 40 + "1" + "}" * 40, "nested too deeply"),
        ("#" * 300_000, "too many for a configuration"),
        ("- a\n- b\n", "not a mapping; write keys such as"),
        ("just text", "not a mapping"),
        ("!!python/object/apply:os.system ['true']", "not a mapping"),
        ("!evil {server: {}}", "the tag '!evil' is not allowed"),
        ("server:\n\tport: 1\n", "a tab where YAML allows only spaces (line 2, column 1)"),
        ("server: {\n", "not valid YAML: "),
        ("server: {port: ${PORT}}", 'between { } or [ ] a variable needs quotes, as in "${NAME}" (line 1, column 17)'),
        ("server: *nowhere\n", "not valid YAML: found undefined alias 'nowhere' (line 1, column 9)"),
        ("a: \x00", "not valid YAML: special characters are not allowed"),
        ("--- {}\n--- {}\n", "not valid YAML: "),
        ("? [a]\n: b\n", "a list or mapping cannot be a key"),
    ],
)
def test_a_hostile_file_gets_one_clear_error(text: str, fault: str) -> None:
    """Never a traceback, never a hang."""
    (said,) = faults(text)
    assert said.startswith("the file: ")
    assert fault in said


@pytest.mark.parametrize("value", ["!!python/name:os.system ''", "!!set {a}", "!!timestamp 2024-01-01", "!custom x", "!!int x"])
def test_a_tag_is_refused_where_it_stands(value: str) -> None:
    """Only plain values."""
    (said,) = faults(f"server:\n  host: {value}")
    assert said.startswith("server.host: ")
    assert said.endswith("write a plain value (line 2)")


def test_a_merge_key_is_refused() -> None:
    """What it merges would not be visible where it counts."""
    assert any(line.startswith("policy.'<<': unknown key") for line in faults("policy: {<<: {mode: observe}}"))


@given(st.text(max_size=80) | st.text(alphabet=" \n:{}[]-&*!#'\"${}ab1", max_size=60))
def test_any_text_loads_or_gets_a_configuration_error(text: str) -> None:
    """No input raises anything else."""
    try:
        load(text, {})
    except ConfigError as error:
        assert str(error)


def test_a_fault_of_an_option_names_no_line_of_the_file() -> None:
    """What stands there is right, and was replaced."""
    text = "store:\n  url: memory://\npolicy: {preset: plain}\n"
    flags: dict[tuple[str, ...], object] = {("store", "url"): "redis://", ("policy", "detector", "cycle"): 3}
    with pytest.raises(ConfigError) as failure:
        load(text, {}, flags)
    url, detector = str(failure.value).splitlines()
    assert url.startswith("store.url: 'redis://' is not a usable URL") and url.endswith("(given by an option)")
    assert detector.startswith("policy.detector: unknown key") and detector.endswith("(given by an option)")
