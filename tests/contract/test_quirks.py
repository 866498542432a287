"""Recorded shapes of servers, through the whole proxy: each passes to the byte, and a loop in it is stopped like any other.

The shapes are those of `tests/golden/`: what vLLM, SGLang, Ollama, llama.cpp, Gemini, Azure, OpenRouter, Moonshot, Groq, DeepSeek and
others do in their own way.
"""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from proxy.dialects import DIALECTS
from proxy.dialects.sse import Splitter
from proxy.models import Answer, Choice
from proxy.policy import OnStop, Policy
from tests.in_process import Proxy, ScriptedResponse, stream
from tests.spoken import SPOKEN
from tests.upstreams import DONE

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
STOP = "[lastcall stop]"
ANOTHER = (("search", '{"for": "another"}'),)
USAGE = {"stream_options": {"include_usage": True}}


def answer_of(path: Path) -> Answer:
    return msgspec.json.decode(path.with_name(path.name.split(".")[0] + ".answer.json").read_bytes(), type=Answer)


def loops(answer: Answer) -> bool:
    """Whether a client that repeats its calls can be written with functions alone."""
    calls = [call for choice in answer.choices for call in choice.calls]
    sound = answer.complete and not answer.error and bool(calls)
    cut = answer.complete and answer.choices[0].finish == "max_tokens"
    return (
        sound
        and not cut
        and len(answer.choices) == 1
        and not any(call.custom or call.kind for call in calls)
        and not answer.choices[0].hosted
    )


def shapes(pattern: str, *more: Any, looping: bool = False) -> list[Any]:
    return [
        pytest.param(path, file.read_bytes(), answer_of(file), *more, id=f"{dialect.name}-{file.name}")
        for path, dialect in DIALECTS.items()
        for file in sorted((GOLDEN / dialect.name).glob(pattern))
        if not looping or loops(answer_of(file))
    ]


def read(path: str, body: bytes) -> Answer:
    reader = DIALECTS[path].reader()
    for event in Splitter().feed(body):
        reader.feed(event)
    return reader.answer()


@pytest.mark.parametrize(("path", "recorded", "answer"), shapes("*.sse"))
@pytest.mark.parametrize("times", [0, 4], ids=["healthy", "armed"])
async def test_a_shape_that_is_no_loop_passes_to_the_byte(path: str, recorded: bytes, answer: Answer, times: int) -> None:
    """In one piece and byte by byte; also while the next call may be a stop, for another call was made four times."""
    for pieces in ([recorded], [recorded[at : at + 1] for at in range(len(recorded))]):
        given = await Proxy(stream(*pieces)).ask(SPOKEN[path].asks(times, calls=ANOTHER, **USAGE), f"/v1{path}")
        assert given.body == recorded


@pytest.mark.parametrize(("path", "recorded", "answer"), shapes("*.body.json"))
async def test_a_whole_shape_that_is_no_loop_passes_to_the_byte(path: str, recorded: bytes, answer: Answer) -> None:
    """Likewise."""
    for times in (0, 4):
        given = await Proxy(ScriptedResponse(recorded)).ask(SPOKEN[path].asks(times, calls=ANOTHER, stream=False), f"/v1{path}")
        assert given.body == recorded


def last(path: str, body: bytes, *, streamed: bool) -> Choice:
    answer = read(path, body) if streamed else DIALECTS[path].read_answer(body)
    assert answer.complete
    return answer.choices[0]


@pytest.mark.parametrize(
    ("path", "recorded", "answer", "streamed"), shapes("*.sse", True, looping=True) + shapes("*.body.json", False, looping=True)
)
@pytest.mark.parametrize("on_stop", [OnStop.WRAP_UP, OnStop.MESSAGE, OnStop.ERROR])
async def test_a_loop_in_any_shape_is_stopped(path: str, recorded: bytes, answer: Answer, streamed: bool, on_stop: OnStop) -> None:
    """All that a message calls was called in each of four before: no call goes out, and the run ends as the policy says."""
    spoken = SPOKEN[path]
    calls = [(call.name, call.arguments) for call in answer.choices[0].calls]
    answers = [stream(recorded) if streamed else ScriptedResponse(recorded), ScriptedResponse(spoken.wholly(DONE))]
    proxy = Proxy(*answers, policy=Policy(on_stop=on_stop))
    given = await proxy.ask(spoken.asks(4, calls=calls, stream=streamed, **(USAGE if streamed else {})), f"/v1{path}")

    assert given.lastcall["action"] in ("stop", "nudge")  # told in the last event, where headers went out before
    if on_stop is OnStop.ERROR:
        assert (given.status, given.json["error"]["code"]) == (400, "lastcall_repeated_call")
        return
    said = last(path, given.body, streamed=streamed)
    assert said.calls == ()
    assert STOP in said.text
    assert ("one line" in said.text) is (on_stop is OnStop.WRAP_UP)
    assert b'"action":"stop"' in given.body
