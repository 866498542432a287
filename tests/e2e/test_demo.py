"""`lastcall demo`: a real agent, a real proxy, and numbers that follow from what went over the wire."""

import contextlib
import io
import json
import sys
import threading
import time
from typing import Any

import pytest

from proxy import demo, mock

LOOPS = mock.Script()
ANSWERS_AFTER_TWO = mock.parse_script('[{}, {}, {"text": "Two files."}]')


def tell(*, as_json: bool) -> str:
    """What the command writes, having checked that it succeeds."""
    with contextlib.redirect_stdout(io.StringIO()) as output:
        assert demo.run(as_json=as_json) == 0
    return output.getvalue()


@pytest.fixture(scope="module")
def report() -> Any:
    """One run of the demo on a machine whose HTTP proxy leads nowhere."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
            patch.setenv(name, "http://127.0.0.1:9")
        return json.loads(tell(as_json=True))


def test_without_lastcall_only_the_cap_ends_the_agent(report: Any) -> None:
    """Every turn is the same call, and there is no answer."""
    run = report["runs"][0]
    assert (len(run["turns"]), run["upstream_calls"], run["answer"]) == (demo.TURN_CAP, demo.TURN_CAP, None)
    assert run["ended"] == f"cut off by the demo after {demo.TURN_CAP} turns"
    assert {(turn["call"], turn["action"]) for turn in run["turns"]} == {('bash({"command": "git status"})', None)}


def test_with_lastcall_the_agent_ends_with_an_answer_after_six_upstream_calls(report: Any) -> None:
    """Third result: nudge. Fifth call: stop, and the wrap-up is the sixth upstream call."""
    run = report["runs"][1]
    assert [turn["action"] for turn in run["turns"]] == ["allow", "allow", "allow", "nudge", "stop"]
    assert [turn["call"] is None for turn in run["turns"]] == [False, False, False, False, True]
    assert run["upstream_calls"] == 6
    assert run["answer"].startswith("[lastcall stop]")
    assert "On branch main" in run["answer"]
    assert "stopped it at turn 5" in run["ended"]


def test_a_model_that_heeds_the_nudge_is_not_stopped(report: Any) -> None:
    """It answers itself in the exchange that carries the nudge, at no extra upstream call."""
    run = report["runs"][2]
    assert [turn["action"] for turn in run["turns"]] == ["allow", "allow", "allow", "nudge"]
    assert (run["upstream_calls"], run["answer"]) == (4, "This is what I know: On branch main")
    assert run["ended"] == "the model answered after the nudge"


def test_the_numbers_are_those_of_the_run(report: Any) -> None:
    """What the answers reported is what the upstream counted; cost and saving follow from it."""
    without, protected, _ = report["runs"]
    price = report["usd_per_million_tokens"]
    for run in report["runs"]:
        tokens = run["input_tokens"] + run["output_tokens"]
        assert run["turns"][-1]["tokens"] == tokens
        assert run["cost_usd"] * 1e6 == pytest.approx(run["input_tokens"] * price["input"] + run["output_tokens"] * price["output"], abs=1)
    assert [turn["tokens"] for turn in without["turns"]] == running_sum(turn["reported"] for turn in without["turns"])
    assert report["saved"]["upstream_calls"] == without["upstream_calls"] - protected["upstream_calls"]
    assert report["saved"]["tokens"] == without["turns"][-1]["tokens"] - protected["turns"][-1]["tokens"] > 0
    assert report["saved"]["cost_usd"] == pytest.approx(without["cost_usd"] - protected["cost_usd"], abs=1e-6)


def running_sum(numbers: Any) -> list[int]:
    """The sums so far."""
    sums = [0]
    for number in numbers:
        sums.append(sums[-1] + number)
    return sums[1:]


def test_it_tells_what_happened_and_not_a_story(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """With a model that answers by itself nothing is nudged, stopped or saved, and the output says so, in plain text."""
    scenes = (demo.Scene("Alone", ANSWERS_AFTER_TWO, protected=False), demo.Scene("Watched", ANSWERS_AFTER_TWO, protected=True))
    monkeypatch.setattr(demo, "SCENES", scenes)
    before = threading.active_count()
    started = time.monotonic()
    text = tell(as_json=False)
    assert text.count('bash({"command": "git status"})') == 4
    assert text.count("Two files.") == 2
    assert "nudge" not in text
    assert "Lastcall saved 0 upstream calls, 0 tokens (0%), $0.0000.\n" in text
    assert "\x1b" not in text
    assert capfd.readouterr().err == ""
    assert threading.active_count() == before
    assert time.monotonic() - started < 30


def test_each_turn_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Number, call, tokens so far and verdict stand side by side, within 80 columns."""
    monkeypatch.setattr(demo, "SCENES", (demo.Scene("Alone", ANSWERS_AFTER_TWO, protected=False), demo.Scene("On", LOOPS, protected=True)))
    monkeypatch.setenv("COLUMNS", "80")
    lines = [line.split() for line in tell(as_json=False).splitlines()]
    nudged = next(line for line in lines if "nudge" in line)
    assert (nudged[0], nudged[1]) == ("4", 'bash({"command":')
    assert nudged[-4:-1] == ["nudge", "repeated_call", "bash"]
    assert ["5", "answers", "in", "text"] in [line[:4] for line in lines if "stop" in line]


def test_without_the_sdk_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """One line on standard error, nothing else."""
    monkeypatch.setitem(sys.modules, "openai", None)
    assert demo.run(as_json=False) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1
    assert "pip install 'lastcall[demo]'" in output.err


# A server thread whose application refuses to start ends by SystemExit, which threads ignore and pytest reports.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_proxy_that_cannot_start_ends_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    """It fails at once and says so, rather than waiting for an answer that cannot come."""

    async def broken(scope: dict[str, Any], receive: Any, send: Any) -> None:
        assert scope["type"] == "lifespan"
        await send({"type": "lifespan.startup.failed", "message": "no store"})

    monkeypatch.setattr(demo, "SCENES", (demo.Scene("On", LOOPS, protected=True),))
    monkeypatch.setattr("proxy.app.create_app", lambda config, **options: broken)
    with pytest.raises(RuntimeError, match="ended before it had started"):
        tell(as_json=False)
