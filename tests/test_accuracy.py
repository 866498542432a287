"""`make accuracy`: what its tables count, on a small folder of made-up runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from bench.accuracy import main


def run(id: str, *calls: str) -> dict[str, Any]:
    turns: list[dict[str, Any]] = [{"role": "user", "text_len": 9}]
    for number, call in enumerate(calls):
        name = "write_file" if call.isdigit() else "ls"
        turns.append({"role": "assistant", "text": "", "calls": [{"id": f"c{number}", "name": name, "arguments": {"path": call}}]})
        turns.append({"role": "tool", "id": f"c{number}", "result": "nothing"})
    return {"id": id, "turns": turns}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A modern agent that collapses once and works twice, and an old one."""
    work = [step for number in range(6) for step in ("test", str(number))]
    modern = [run("stuck", *["a"] * 8), run("busy", "a", "b", "c"), run("gate", *work)]
    (tmp_path / "modern.jsonl").write_text("\n".join(map(json.dumps, modern)))
    (tmp_path / "intercode_x.jsonl").write_text(json.dumps(run("old", *["a"] * 4)))
    (tmp_path / "labels.jsonl").write_text(json.dumps({"id": "stuck", "verdict": "collapse"}) + "\n")
    return tmp_path


def test_tables_tell_work_collapses_and_the_rest_apart(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For each way of counting; a run without a label is work, unless nobody has read its file."""
    main([str(folder)])
    told = capsys.readouterr().out
    assert told.startswith("4 runs, 27 calls.")
    legit, collapses, unread = told.split("**")[2::2][:3]
    assert "| modern | 2 | 0 (0) | 0 (0) | 1 (0) | 1 (0) |" in legit
    assert "| modern | 1 | 1 | 1 | 1 | 1 |" in collapses
    assert "| intercode_x | 1 | 0 (1) | 0 (1) | 0 (1) | 0 (1) |" in unread
    assert "| repeated_call | 0 (0) | 1 (0) | 0 (1) |" in told


def test_the_runs_behind_the_tables_can_be_listed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """To be read by hand."""
    main([str(folder), "--list", "cumulative", "--unread", "none"])
    assert capsys.readouterr().out.splitlines() == [
        "intercode_x old legit nudge at 3 of 4: repeated_call ls x3",
        "modern stuck collapse stop at 5 of 8: repeated_call ls x5",
        "modern gate legit stop at 9 of 12: repeated_call ls x5",
    ]


def test_stopped_runs_without_a_label_can_be_listed_in_short(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By experiment: everything before the last hyphen of an id."""
    (folder / "intercode_y.jsonl").write_text("\n".join(json.dumps(run(f"ic-base-{number}", *["a"] * 6)) for number in (1, 2)))
    main([str(folder), "--short", "no_progress"])
    assert capsys.readouterr().out == "ic-base: 1@5 2@5\n"


def test_a_folder_without_runs_is_named(tmp_path: Path) -> None:
    """The data is not part of the project."""
    with pytest.raises(SystemExit, match=r"no recorded runs there; name a folder that holds \*\.jsonl"):
        main([str(tmp_path)])


def test_what_cannot_be_read_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A damaged file does not shrink the tables in silence."""
    (folder / "labels.jsonl").unlink()
    with (folder / "modern.jsonl").open("a") as file:
        file.write("\n{")
    main([str(folder)])
    assert "modern.jsonl, line 4: not JSON" in capsys.readouterr().err
