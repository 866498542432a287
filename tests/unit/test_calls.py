"""The upstream calls of an exchange: what an upstream rejects is asked once, and every call is accounted for exactly once."""

from dataclasses import dataclass
from typing import Any

import pytest

from proxy.calls import Calls, Quirks, Refusal, is_stream
from proxy.client import Client
from proxy.dialects import DIALECTS
from proxy.errors import UpstreamCut, UpstreamFailed
from proxy.events import UpstreamError
from proxy.identity import Identity, Tighten
from proxy.models import Answer, Choice, Edits, Insert, Usage
from proxy.policy import Mode, Policy
from proxy.sessions import Session
from proxy.store import Settlement
from tests.in_process import Answer as Scripted
from tests.in_process import Clock, Conversation, Proxy, ScriptedResponse, ScriptedUpstream, answer, call_stream, request, stream

CHAT = DIALECTS["/chat/completions"]
USAGE = Edits(ask_usage=True)
INSERT = Edits(inserts=(Insert(0, "[lastcall] note"),))
BOTH = Edits(inserts=INSERT.inserts, ask_usage=True)
NO_USAGE = b'{"error": {"message": "Unknown parameter: stream_options"}}'
NO_INSERT = b'{"detail": "Conversation roles must alternate user/assistant"}'


@dataclass
class Made:
    """Calls on a scripted upstream, and what they are about."""

    calls: Calls
    session: Session
    upstream: ScriptedUpstream
    clock: Clock

    @property
    def asked(self) -> list[tuple[bool, bool]]:
        """For each request sent: whether it held an added text, whether it asked for usage."""
        return [(b"[lastcall] note" in sent.body, b"include_usage" in sent.body) for sent in self.upstream.sent]


async def made(*answers: Scripted, quirks: Quirks | None = None, **members: Any) -> Made:
    """In observe mode, where Lastcall wishes for nothing of its own: what is sent are the edits of a test."""
    proxy, upstream, clock = Proxy(), ScriptedUpstream(*answers), Clock()
    parsed = CHAT.parse(request(stream=True, **members))
    session = await proxy.sessions.open(Identity("key", None, "derived", None, False, Tighten()), parsed, Policy(mode=Mode.OBSERVE))
    conversation = Conversation()
    client = Client({"headers": [(b"x-a", b"1")]}, conversation.receive, conversation.send)
    known = quirks if quirks is not None else Quirks()
    return Made(Calls(client, CHAT, session, upstream, "up", "/chat/completions", b"a=b", known, clock), session, upstream, clock)


def refusal(status: int, body: bytes = b"no") -> ScriptedResponse:
    return ScriptedResponse(body, status=status)


# ---- quirks


def test_quirks_are_known_by_upstream_model_and_kind() -> None:
    """What one rejects says nothing about another."""
    quirks = Quirks()
    quirks.note("a", "m", "usage")

    assert quirks.rejects("a", "m", "usage")
    assert not any([quirks.rejects("b", "m", "usage"), quirks.rejects("a", "n", "usage"), quirks.rejects("a", "m", "insert")])


def test_quirks_are_bounded() -> None:
    """Model names come from clients: the oldest go first."""
    quirks = Quirks()
    for number in range(1025):
        quirks.note("a", str(number), "usage")

    assert [quirks.rejects("a", str(number), "usage") for number in (0, 512, 1024)] == [False, True, True]


@pytest.mark.parametrize(
    ("edits", "status", "body", "asked"),
    [
        (USAGE, 400, NO_USAGE, [(False, True), (False, False)]),
        (USAGE, 422, b"extra fields: include_usage", [(False, True), (False, False)]),
        (INSERT, 400, NO_INSERT, [(True, False), (False, False)]),
        (INSERT, 422, b"System message must be at the beginning", [(True, False), (False, False)]),
        (INSERT, 500, b"jinja TemplateError", [(True, False), (False, False)]),
        (INSERT, 500, b'{"error": "roles must alternate"}', [(True, False), (False, False)]),
        (INSERT, 400, b'{"object": "error", "message": "Unexpected role \'user\' after role \'tool\'"}', [(True, False), (False, False)]),
        (INSERT, 422, b'{"detail": [{"msg": "Conversation roles must alternate"}]}', [(True, False), (False, False)]),
        (INSERT, 400, b'[{"error": {"message": "role"}}]', [(True, False), (False, False)]),
        (INSERT, 400, b'{"error": {"message": "Provider returned error", "metadata": {"raw": "role"}}}', [(True, False), (False, False)]),
        (INSERT, 400, b'{"error": {"message": "Bad role", "metadata": null}}', [(True, False), (False, False)]),
        (BOTH, 400, NO_USAGE, [(True, True), (True, False)]),
        (BOTH, 400, NO_INSERT, [(True, True), (False, True)]),
    ],
)
async def test_what_an_upstream_rejects_is_left_out_the_second_time(
    edits: Edits, status: int, body: bytes, asked: list[tuple[bool, bool]]
) -> None:
    """The same request without it, once; both attempts are counted."""
    case = await made(refusal(status, body), answer("hi"))

    response = await case.calls.send(edits)

    assert not isinstance(response, Refusal)
    assert case.asked == asked
    assert (case.calls.account.calls, len(case.calls.account.errors)) == (2, 1)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (
            400,
            b'{"error": {"message": "Failed to call a function.", "code": "tool_use_failed", "failed_generation": "<role>conversation"}}',
        ),
        (400, b'{"error": {"message": "prompt is too long: 9 > 8"}, "request": {"messages": [{"role": "user"}]}}'),
        (500, b'{"error": "out of memory", "template": "chatml"}'),
        (422, b'{"object": "error", "message": "bad seed", "input": "system message"}'),
    ],
)
async def test_an_error_that_only_quotes_is_passed_on_at_once(status: int, body: bytes) -> None:
    """What was sent or made is no complaint, whatever words it holds: the nudge has nothing to do with it."""
    case = await made(refusal(status, body))

    assert isinstance(await case.calls.send(INSERT), Refusal)
    assert case.asked == [(True, False)]


async def test_what_was_rejected_is_remembered() -> None:
    """For that upstream and model it is never tried again."""
    quirks = Quirks()
    await (await made(refusal(400, NO_USAGE), refusal(400, NO_INSERT), answer("hi"), quirks=quirks)).calls.send(BOTH)
    again = await made(answer("hi"), quirks=quirks)
    await again.calls.send(BOTH)
    other = await made(answer("hi"), quirks=quirks, model="gpt-other")
    await other.calls.send(BOTH)

    assert again.asked == [(False, False)]
    assert other.asked == [(True, True)]


async def test_a_rejection_that_leaving_out_did_not_mend_is_not_remembered() -> None:
    """Then it was about something else, and whoever caused it must not take the nudges from everybody."""
    quirks = Quirks()
    failed = await made(refusal(400, NO_INSERT), refusal(400, NO_INSERT), quirks=quirks)
    response = await failed.calls.send(INSERT)
    cut = await made(refusal(400, NO_USAGE), UpstreamFailed("gone"), quirks=quirks)
    with pytest.raises(UpstreamFailed):
        await cut.calls.send(USAGE)
    again = await made(answer("hi"), quirks=quirks)
    await again.calls.send(BOTH)

    assert isinstance(response, Refusal)
    assert again.asked == [(True, True)]


async def test_a_model_with_an_endless_name_is_not_remembered() -> None:
    """What is remembered has a bounded size."""
    quirks = Quirks()
    quirks.note("up", "m" * 300, "insert")

    assert not quirks.rejects("up", "m" * 300, "insert")


async def test_one_rejection_after_the_other_is_followed() -> None:
    """Usage, then the text, then the answer."""
    case = await made(refusal(400, NO_USAGE), refusal(400, NO_INSERT), answer("hi"))

    await case.calls.send(BOTH)

    assert case.asked == [(True, True), (True, False), (False, False)]


@pytest.mark.parametrize(
    ("edits", "status", "body"),
    [
        (Edits(), 400, NO_USAGE + NO_INSERT),
        (USAGE, 400, NO_INSERT),
        (INSERT, 400, NO_USAGE),
        (USAGE, 500, NO_USAGE),
        (INSERT, 429, NO_INSERT),
        (BOTH, 401, NO_USAGE + NO_INSERT),
        (BOTH, 400, b"context length exceeded"),
    ],
)
async def test_any_other_refusal_is_the_answer(edits: Edits, status: int, body: bytes) -> None:
    """Nothing is sent twice, and the refusal comes back whole."""
    case = await made(refusal(status, body))

    response = await case.calls.send(edits)

    assert isinstance(response, Refusal)
    assert (response.response.status, response.body) == (status, body)
    assert len(case.asked) == 1


async def test_a_request_goes_out_with_the_clients_header_path_and_query() -> None:
    """And as a plain one, since its body may be rewritten."""
    case = await made(answer("hi"))
    await case.calls.send(Edits())

    (sent,) = case.upstream.sent
    assert (sent.method, sent.path, sent.query, sent.plain) == ("POST", "/chat/completions", b"a=b", True)
    assert (list(sent.headers), sent.body) == ([(b"x-a", b"1")], case.session.request.body)


# ---- accounts


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (refusal(404), UpstreamError.CLIENT_ERROR),
        (refusal(429), UpstreamError.RATE_LIMITED),
        (refusal(503), UpstreamError.SERVER_ERROR),
        (UpstreamFailed("refused"), UpstreamError.UNREACHABLE),
        (UpstreamFailed("slow", status=504), UpstreamError.TIMEOUT),
    ],
)
async def test_every_failure_has_its_name(failure: Scripted, kind: UpstreamError) -> None:
    """One entry for each call that failed."""
    case = await made(failure)

    if isinstance(failure, Exception):
        with pytest.raises(UpstreamFailed):
            await case.calls.send(Edits())
    else:
        await case.calls.send(Edits())

    assert case.calls.account.errors == (kind,)


async def test_an_error_answer_that_breaks_off_is_one_failure() -> None:
    """It is a cut, not a refusal and a cut."""
    case = await made(ScriptedResponse(b"half", UpstreamCut("half"), status=500))

    with pytest.raises(UpstreamCut):
        await case.calls.send(Edits())

    assert case.calls.account.errors == (UpstreamError.CUT,)


@pytest.mark.parametrize(("failure", "pays"), [(UpstreamFailed("refused"), False), (UpstreamFailed("slow", status=504), True)])
async def test_a_call_that_got_no_answer_is_settled_at_once(failure: UpstreamFailed, pays: bool) -> None:
    """One that may have been heard pays for its input, one that was not pays nothing."""
    case = await made(failure)

    with pytest.raises(UpstreamFailed):
        await case.calls.send(Edits())
    case.calls.close()

    (settlement,) = case.session.settlements
    assert (settlement.steps, settlement.input_tokens > 0) == (0, pays)


async def test_a_cut_and_a_reported_error_have_their_names() -> None:
    """A cut is told from an upstream that was never reached."""
    case = await made()
    case.calls.cut(UpstreamCut("half"))
    case.calls.cut(UpstreamFailed("slow", status=504))
    case.calls.complete(Answer(error=True))
    case.calls.complete(Answer(error=True))

    assert case.calls.account.errors == (UpstreamError.CUT, UpstreamError.TIMEOUT, UpstreamError.REPORTED)


async def test_a_call_is_settled_once_whoever_asks_again() -> None:
    """The first word stands; its time, tokens and step are counted once."""
    case = await made(answer("hi"))
    await case.calls.send(Edits())
    case.clock.now += 2
    whole = Answer((Choice("hi"),), Usage(10, 3), complete=True)

    case.calls.settle(whole, completed=True)
    case.calls.settle(Answer(), completed=False)
    case.calls.close()

    size = len(case.session.request.body)
    assert case.session.settlements == [Settlement(case.session.lease, 1, 10, 3, size)]
    account = case.calls.account
    assert (account.seconds, account.usage, account.estimated) == (2, Usage(10, 3), False)


async def test_usage_that_no_provider_gives_is_estimated() -> None:
    """Then the session's ratio of tokens to bytes learns nothing from it."""
    case = await made(answer("hi"))
    await case.calls.send(Edits())
    case.calls.settle(Answer((Choice("12345678"),)), completed=True)

    (settlement,) = case.session.settlements
    assert settlement == Settlement(case.session.lease, 1, -(-len(case.session.request.body) // 4), 2, 0)
    assert case.calls.account.estimated


async def test_closing_gives_back_the_lease_of_a_call_never_made() -> None:
    """It costs nothing."""
    case = await made()
    case.calls.close()

    assert case.session.settlements == [Settlement(case.session.lease, 0, 0, 0, 0)]
    assert case.calls.account.calls == 0


async def test_closing_settles_a_call_that_was_broken_off() -> None:
    """It pays for its input and is no step."""
    case = await made(answer("hi"))
    await case.calls.send(Edits())
    case.calls.close()

    (settlement,) = case.session.settlements
    assert (settlement.steps, settlement.output_tokens) == (0, 0)
    assert settlement.input_tokens > 0


async def test_the_time_of_the_first_question_is_kept() -> None:
    """Overhead ends there, however many calls follow."""
    case = await made(refusal(400, NO_USAGE), answer("hi"))
    began = case.clock.now
    await case.calls.send(USAGE)
    case.clock.now += 5

    assert case.calls.account.asked_at == began


# ---- answers read whole


@pytest.mark.parametrize("response", [answer(None, {"id": "n0", "type": "function", "function": {"name": "ls", "arguments": "{}"}})])
async def test_a_whole_answer_is_read_and_settled(response: ScriptedResponse) -> None:
    """With its usage and its step."""
    case = await made(response)

    read = await case.calls.whole_answer(Edits())

    assert read is not None
    assert [call.name for call in read.choices[0].calls] == ["ls"]
    assert case.session.settlements[0].steps == 1


@pytest.mark.parametrize("size", [1, 50, 10_000])
async def test_a_streamed_answer_is_put_together(size: int) -> None:
    """As the same answer, in whatever pieces it comes, its last event ended or not."""
    events = b"".join(call_stream()).rstrip(b"\n")
    case = await made(stream(*(events[at : at + size] for at in range(0, len(events), size))))

    read = await case.calls.whole_answer(Edits())

    assert read is not None
    assert (read.complete, read.usage, [call.name for call in read.choices[0].calls]) == (True, Usage(10, 3), ["ls"])
    assert case.session.settlements[0].steps == 1


@pytest.mark.parametrize(
    ("failure", "kinds"),
    [
        (refusal(500), (UpstreamError.SERVER_ERROR,)),
        (ScriptedResponse(b'{"cho', UpstreamCut("half")), (UpstreamError.CUT,)),
        (stream(call_stream()[0], UpstreamCut("half")), (UpstreamError.CUT,)),
        (UpstreamFailed("refused"), (UpstreamError.UNREACHABLE,)),
    ],
)
async def test_a_call_that_failed_gives_no_answer(failure: Scripted, kinds: tuple[UpstreamError, ...]) -> None:
    """None, settled without a step, its failure noted once."""
    case = await made(failure)

    assert await case.calls.whole_answer(Edits()) is None
    assert case.calls.account.errors == kinds
    assert [settlement.steps for settlement in case.session.settlements] == [0]


async def test_an_error_inside_a_successful_answer_is_no_answer() -> None:
    """It was a call all the same, and paid for."""
    case = await made(ScriptedResponse(b'{"error": {"message": "overloaded"}, "choices": []}'))

    assert await case.calls.whole_answer(Edits()) is None
    assert case.calls.account.errors == (UpstreamError.REPORTED,)
    assert case.session.settlements[0].steps == 1


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (b"text/event-stream", True),
        (b"Text/Event-Stream; charset=utf-8", True),
        (b"application/json", False),
    ],
)
def test_a_stream_is_told_by_its_content_type(kind: bytes, expected: bool) -> None:
    """Whatever was asked for."""
    assert is_stream(ScriptedResponse(kind=kind)) is expected
