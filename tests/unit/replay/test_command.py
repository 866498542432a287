"""`lastcall replay`: files, options, output, exit status."""

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from proxy.cli import main
from tests.transcripts import called, messages, said, user

ASK = user("Where is it?")
LOOP = json.dumps(list(messages([ASK, *[called()] * 6, said("Gone.")])))
WORK = json.dumps(list(messages([ASK, called(), said("There.")])))


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two recordings in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    Path("loop.json").write_text(LOOP)
    Path("work.json").write_text(WORK)


def run(*arguments: str, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(main, ["replay", *arguments], input=stdin)


def stops(*arguments: str) -> list[int]:
    """The calls at which loop.json would be stopped."""
    result = run("loop.json", "--json", *arguments)
    return [mark["call"] for mark in json.loads(result.stdout)["runs"][0]["stops"]]


def test_a_stop_is_a_finding() -> None:
    """Exit status 1, and 0 where nothing would stop."""
    found, clean = run("loop.json", "work.json"), run("work.json")
    assert (found.exit_code, clean.exit_code) == (1, 0)
    assert "2 runs, 7 calls: 1 would be stopped, 0 only nudged, 1 left alone." in found.stdout
    assert "loop.json" in found.stdout
    assert "work.json" not in found.stdout
    assert clean.stdout == "1 run, 1 call: 0 would be stopped, 0 only nudged, 1 left alone.\n"


def test_runs_left_alone_are_shown_on_demand() -> None:
    """--all."""
    assert "work.json" in run("--all", "work.json").stdout


def test_standard_input_and_gzip_are_read() -> None:
    """- for the one; the other is told by its first bytes."""
    assert "standard input" in run("-", stdin=LOOP).stdout
    Path("packed").write_bytes(gzip.compress(LOOP.encode()))
    assert run("packed").exit_code == 1


def test_options_replace_what_the_file_says() -> None:
    """So that people can tune on their own logs."""
    assert stops() == [5]
    Path("config.yaml").write_text("policy: {detectors: {repeated_call: {stop_at: 6}}}")
    assert stops() == [6]
    assert stops("--set", "detectors.repeated_call.stop_at=4") == [4]
    assert stops("--set", "policy.detectors.repeated_call={nudge_at: null, stop_at: 2}") == [2]
    assert stops("--set", "detectors.repeated_call=off", "--set", "detectors.cycle=off") == []
    Path("other.yaml").write_text("policy: {tools: {read_file: {exempt: true}}}")
    assert stops("--config", "other.yaml") == []
    assert stops("--config", "other.yaml", "--set", "tools.read_file.exempt=false", "--preset", "plain", "--counting", "consecutive") == [5]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "Missing argument"),
        (("none.json",), "does not exist"),
        (("work.json", "--counting", "wild"), "no_progress"),
        (("work.json", "--set", "mode"), "'mode' is not KEY=VALUE"),
        (("work.json", "--set", "a..b=3"), "is not KEY=VALUE"),
        (("work.json", "--set", "mode=[a"), "is not a value that could stand in the file"),
        (("work.json", "--set", "mode=a\nb: c"), "is not a value that could stand in the file"),
        (("work.json", "--set", "detectors.repeated_call.stop_at=0"), "policy.detectors.repeated_call.stop_at: 0"),
        (("work.json", "--set", "detectors.repeated_cal.stop_at=3"), "did you mean repeated_call"),
    ],
)
def test_wrong_usage_is_told_from_a_finding(arguments: tuple[str, ...], said: str) -> None:
    """Exit status 2, and what is wrong."""
    result = run(*arguments)
    assert result.exit_code == 2
    assert said in result.stderr


def test_a_file_without_a_recording_is_wrong_usage() -> None:
    """The others are replayed all the same, and what was left out is named on standard error."""
    Path("other.txt").write_text("hello")
    result = run("loop.json", "other.txt")
    assert result.exit_code == 2
    assert "other.txt: not JSON" in result.stderr
    assert "1 would be stopped" in result.stdout
    assert run("other.txt").stdout == ""
    told = json.loads(run("other.txt", "--json").stdout)
    assert (told["runs"], told["left_out"][0]["file"]) == ([], "other.txt")


def test_a_file_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the system's reason."""

    def denied(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", denied)
    Path("config.yaml").unlink(missing_ok=True)
    result = run("work.json")
    assert (result.exit_code, "cannot read work.json: Permission denied" in result.stderr) == (2, True)
