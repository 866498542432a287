"""What a call that is not judged may cost, and what its answer says it did, however it is cut into pieces."""

import json
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.budgets import LARGEST_OUTPUT, TEMPLATE_TOKENS
from proxy.metering import LEAST_TOKENS, UNREPORTED_TOKENS, Meter, Results, charge_of, cost_of, is_charged, is_stored, models_named
from proxy.models import Usage


def read(*pieces: bytes) -> Meter:
    meter = Meter()
    for piece in pieces:
        meter.feed(piece)
    return meter


@pytest.mark.parametrize(
    ("method", "path", "charged"),
    [
        ("POST", "/embeddings", True),
        ("PUT", "/anything", True),
        ("GET", "/batches/b", False),
        ("DELETE", "/files/f", False),
        ("POST", "/messages/count_tokens", False),
        ("POST", "/responses/input_tokens", False),
        ("POST", "/batches/b/cancel", False),
    ],
)
def test_what_is_charged(method: str, path: str, charged: bool) -> None:
    """Whatever makes something; looking up, deleting, counting and cancelling cost nothing."""
    assert is_charged(method, path) is charged


@pytest.mark.parametrize(
    ("path", "stored"),
    [("/files", True), ("/uploads/u/parts", True), ("/messages/batches", True), ("/filesystem", False), ("/images/edits", False)],
)
def test_what_goes_into_storage(path: str, stored: bool) -> None:
    """Its bytes are no tokens."""
    assert is_stored(path) is stored


@pytest.mark.parametrize(
    ("path", "body", "output"),
    [
        ("/embeddings", {"input": "x", "max_tokens": 9}, 0),
        ("/v2/rerank", {"query": "x"}, 0),
        ("/completions", {"prompt": "x"}, LARGEST_OUTPUT),
        ("/completions", {"prompt": "x", "max_tokens": 7}, 7),
        ("/completions", {"prompt": ["x", "y", "z"], "max_tokens": 7, "n": 2}, 42),
        ("/completions", {"prompt": [[1, 2], [3]], "max_tokens": 7, "best_of": 5}, 70),
        ("/completions", {"prompt": [1, 2, 3], "max_tokens": 7}, 7),
        ("/completions", {"prompt": "x", "max_tokens": 7, "n": 0}, 7),
        ("/completions", {"prompt": "x", "max_tokens": -7}, LARGEST_OUTPUT),
        ("/images/generations", {"prompt": "x", "n": 2}, 2 * 16_384),
        ("/chat/x", {"max_completion_tokens": 8, "max_tokens": 3}, 8),
    ],
)
def test_the_most_that_a_request_may_cost(path: str, body: dict[str, object], output: int) -> None:
    """A byte is a token at most; an answer is as long as the request allows, for all of its prompts."""
    data = json.dumps(body).encode()
    bound = charge_of(path, data, "application/json").bound
    several = 3 if body.get("prompt") == ["x", "y", "z"] else 2 if body.get("prompt") == [[1, 2], [3]] else 1

    assert (bound.input_bound, bound.attached) == (len(data) + TEMPLATE_TOKENS * several, 0)
    assert bound.output == bound.modest == bound.floor == output  # nothing is changed: less cannot be granted


def test_what_is_charged_where_nobody_says() -> None:
    """A quarter of a text's bytes; a fixed minimum for whatever is no text."""
    long = json.dumps({"model": "m", "input": "x" * 4_000}).encode()
    assert (charge_of("/embeddings", long, "").model, charge_of("/embeddings", long, "").least) == ("m", -(-len(long) // 4))
    assert charge_of("/embeddings", b"{}", "").least == LEAST_TOKENS
    assert charge_of("/audio/transcriptions", b"RIFF" * 999, "audio/wav").least == UNREPORTED_TOKENS
    assert charge_of("/audio/transcriptions", b"RIFF" * 999, "audio/wav").bound.input_bound > 999 * 4 // 75
    for path, body in (("/files", b"x" * 9_999), ("/other", b"")):
        charge = charge_of(path, body, "")
        assert (charge.model, charge.least, charge.bound.input_bound, charge.bound.output) == ("", UNREPORTED_TOKENS, UNREPORTED_TOKENS, 0)


EMBEDDED = b'{"object": "list", "data": [{"embedding": [0.1, -2e-05], "index": 0}], "usage": {"prompt_tokens": 8, "total_tokens": 8}}'
COMPLETED = b'{"choices":[{"text":"a \\"usage\\": {\\"prompt_tokens\\": 1} b"}],"usage":{"prompt_tokens":5,"completion_tokens":7}}'


@pytest.mark.parametrize(
    ("answer", "usage"),
    [
        (EMBEDDED, Usage(8, 0)),
        (json.dumps(json.loads(EMBEDDED), indent=2).encode(), Usage(8, 0)),
        (COMPLETED, Usage(5, 7)),
        (b'{"usage": {"total_tokens": 9}, "data": []}', Usage(9)),
        (b'{"usage":{"input_tokens":50,"output_tokens":40,"input_tokens_details":{"text_tokens":10,"cached_tokens":4}}}', Usage(50, 40, 4)),
        (b'{"results":[],"meta":{"billed_units":{"input_tokens":3.0}}}', Usage(3)),
        (b'{"response": {"usage": {"input_tokens": 1, "output_tokens": 2}}}', Usage(1, 2)),
        (b'{"metadata": {"usage": {"prompt_tokens": 1}}, "usage": null}', None),
        (b'{"data": [{"usage": {"prompt_tokens": 1}}], "last": "usage"}', None),
        (b'{"usage": {"type": "duration", "seconds": 3}}', None),
        (b'{"usage": {"prompt_tokens": 1', None),
        (b"usage: {}]", None),
        (b"\xff\x00", None),
        (b"", None),
    ],
)
def test_what_an_answer_reports(answer: bytes, usage: Usage | None) -> None:
    """Where providers put it, and nowhere that a client or a model could."""
    assert read(answer).usage == usage
    assert read(*[answer[at : at + 1] for at in range(len(answer))], b"").usage == usage


STREAM = (
    b': a "comment\n\ndata: {"choices":[{"text":"He\\u006c"}]}\n\ndata: {"choices":[{"text":"lo"}],"usage":null}\r\n\r\n'
    b'data: {"choices":[],\ndata: "usage":{"prompt_tokens":5,"completion_tokens":2}}\n\ndata: [DONE]\n\n'
)


@settings(suppress_health_check=[HealthCheck.too_slow])  # on a busy machine
@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_a_stream_is_read_however_it_is_cut(cuts: list[int]) -> None:
    """Its text is counted as written, escapes included."""
    edges = [0, *sorted(cuts), len(STREAM)]
    meter = read(*[STREAM[start:end] for start, end in pairwise(edges)])
    assert (meter.usage, meter.text_bytes) == (Usage(5, 2), len(b"He\\u006clo"))


@given(st.lists(st.binary(max_size=40) | st.sampled_from([b'{"usage":{', b"}", b"[", b'"', b"\\", b":", b"\n", EMBEDDED]), max_size=12))
def test_any_bytes_can_be_read(pieces: list[bytes]) -> None:
    """And a whole answer after a line end is understood again."""
    meter = read(*pieces)
    meter.feed(b"  \n")
    meter.feed(b"]}" * 400 + EMBEDDED)
    assert meter.usage == Usage(8, 0)


def test_depth_and_length_are_bounded() -> None:
    """What no provider sends is not kept."""
    assert read(b'{"a":' * 10_000, EMBEDDED).usage in (None, Usage(8, 0))
    meter = read(b'{"usage": {"x": "', *[b"y" * 4096] * 32, b'", "prompt_tokens": 3}}')
    assert meter.usage is None


def test_what_was_written_is_estimated_where_no_usage_comes() -> None:
    """From its bytes: of choices and of `delta` events, not of documents that come back."""
    charge = charge_of("/completions", b"{}", "")
    assert cost_of(read(b'data: {"type":"x","delta":"12345678"}\n\n'), charge) == Usage(LEAST_TOKENS, 2)
    assert cost_of(read(b'{"choices":[{"message":{"content":"123456789"}}]}'), charge) == Usage(LEAST_TOKENS, 3)
    assert cost_of(read(b'{"results":[{"document":{"text":"12345678"}}]}'), charge) == Usage(LEAST_TOKENS, 0)
    assert cost_of(read(EMBEDDED), charge) == Usage(8, 0)


@pytest.mark.parametrize(
    ("body", "models"),
    [
        (b'x name="model"\r\n\r\na\r\n', ["a"]),
        (b'x Name = "model" \n\na\n', ["a"]),
        (b'filename="a\\"b"; name="model"\r\n\r\na\r\n', ["a"]),
        (b"x name=model\r\nContent-Type: text/plain\r\n\r\na b\r\n", ["a b"]),
        (b'x NAME="model"; charset=x\r\n\r\n\xff\r\n', ["\ufffd"]),
        (b'x name="models"\r\n\r\na\r\n', []),
    ],
)
def test_models_of_a_form(body: bytes, models: list[str]) -> None:
    """However its fields are written."""
    assert models_named(b"Content-Disposition: form-data; " + body, "multipart/form-data; boundary=x") == models


@pytest.mark.parametrize(
    ("body", "models"),
    [
        (b"", []),
        (b"{}", []),
        (b'{"model": "a"}', ["a"]),
        (b'{"mod\\u0065l": "a"}', ["a"]),
        (b'{"MODEL": "b", "model": "a", "Model": 1}', ["a", "b"]),
        (b'\xef\xbb\xbf{"model": "a"}', ["a"]),
        (b'{"model": "a", "x": NaN}', None),
        (b'{"model": "a",}', None),
        ('{"model": "a"}'.encode("utf-16"), None),
        (b'["a"]', None),
        (b"model=a", None),
        (b"\xff\x00", None),
        (b"[" * 100_000, None),
    ],
)
@pytest.mark.parametrize("kind", ["application/json", "text/plain", "multipart/form-data; boundary=x"])
def test_models_of_json(body: bytes, models: list[str] | None, kind: str) -> None:
    """Whatever the content type says, since servers do not all look at it; None where a server might read more than is read here."""
    assert models_named(body, kind) == models


@pytest.mark.parametrize(
    "piece", [b"name=model\n", b"name=model;\r\n", b"content-disposition:", b"content-disposition:name", b'name=" ', b"name \n"]
)
def test_a_form_is_read_in_linear_time(piece: bytes) -> None:
    """Whatever it repeats: the square of a megabyte's pieces would take hours."""
    models_named(b"content-disposition: " + piece * (1_000_000 // len(piece)), "multipart/form-data; boundary=x")


@pytest.mark.parametrize("name", [b"name=model" + b"\r\nx: y" * 9, b"name*=UTF-8''model", b'name="mo\\del"', b'NAME = "m\\odel"'])
def test_a_form_whose_field_names_are_odd_cannot_be_told(name: bytes) -> None:
    """They may mean anything."""
    assert models_named(b"Content-Disposition: form-data; " + name + b"\r\n\r\na\r\n", "multipart/form-data; boundary=x") is None


def test_results_of_a_batch_are_read_in_any_pieces() -> None:
    """A line that is too long for any answer is left out, and what is no line of results."""
    line = b'{"result": {"message": {"model": "m", "usage": {"input_tokens": 3, "output_tokens": 1}}}}'
    for size in (1, 7, 10_000):
        results, data = Results(), b"\n".join([line, b"[]", b'{"result": {"message": {"model": "m"}}}', line])
        for start in range(0, len(data), size):
            results.feed(data[start : start + size])
        results.feed(b"")
        assert results.spent == {"m": Usage(6, 2, tier="batch")}


def test_a_line_without_an_end_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded."""
    monkeypatch.setattr("proxy.metering._LONGEST_LINE", 100)
    results = Results()
    for _ in range(50):
        results.feed(b"x" * 10)
    assert len(results._rest) <= 100
