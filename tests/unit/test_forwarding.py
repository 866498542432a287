"""Streams on their way: what goes out at once, what is held, what is cut, and in which order the store and the client learn of the end."""

from collections.abc import Sequence

import pytest

from proxy.dialects import DIALECTS
from proxy.forwarding import Forwarder
from proxy.models import Answer, Reason
from proxy.policy import Ladder, Mode, Policy
from tests.in_process import DONE, OPENING, USAGE_EVENT, begins, call_stream, delta, text_stream

CHAT = DIALECTS["/chat/completions"]
COMMENT = b": PROCESSING\n\n"
CUT_AT = Policy(ladders={Reason.PARALLEL_REPEAT: Ladder(2, 3)})


class Passage:
    """A forwarder with a log of what happened: bytes for the client, and the answer announced before the end."""

    def __init__(
        self, policy: Policy | None = None, *, armed: bool = False, strip: bool = False, mute: bool = False, object_at: int = 99
    ) -> None:
        self.log: list[bytes | Answer] = []
        self.asked: list[int] = []
        self._object_at = object_at
        self.forwarder = Forwarder(
            CHAT,
            policy or Policy(),
            armed=armed,
            strip_usage=strip,
            mute=mute,
            write=self._write,
            ending=self.log.append,
            objects=self._objects,
        )

    async def _write(self, data: bytes) -> None:
        assert data, "an empty write says nothing"
        self.log.append(data)

    def _objects(self, answer: Answer) -> bool:
        calls = len(answer.choices[0].calls)
        self.asked.append(calls)
        return calls >= self._object_at

    async def follow(self, chunks: Sequence[bytes]) -> "Passage":
        """As an exchange does: chunk by chunk until the end or the cut."""
        for chunk in chunks:
            await self.forwarder.take(chunk)
            if self.forwarder.cut:
                break
        await self.forwarder.finish()
        return self

    @property
    def out(self) -> bytes:
        return b"".join(entry for entry in self.log if isinstance(entry, bytes))

    @property
    def held(self) -> bytes:
        return b"".join(self.forwarder.held)

    @property
    def outcome(self) -> tuple[object, ...]:
        """What must not depend on how the stream was cut into chunks."""
        forwarder = self.forwarder
        return self.out, self.held, forwarder.holding, forwarder.spoke, forwarder.cut, forwarder.reader.answer()


def chunkings(stream: bytes) -> list[list[bytes]]:
    """In one piece, byte by byte, and in pieces that fall across every boundary there is."""
    return [[stream], *([stream[at : at + size] for at in range(0, len(stream), size)] for size in (1, 7, 64, 333))]


def many(*names: str) -> list[bytes]:
    """A message that makes these calls, one event each."""
    calls = [begins(name, position=position) for position, name in enumerate(names)]
    return [OPENING, *calls, delta({}, "tool_calls"), USAGE_EVENT, DONE]


# ---- healthy streams


@pytest.mark.parametrize("events", [text_stream(), call_stream(), [COMMENT, *text_stream()], many("a", "b", "c")])
async def test_a_healthy_stream_passes_as_it_is(events: list[bytes]) -> None:
    """Byte for byte, however it arrives, and nothing is held."""
    stream = b"".join(events)
    for chunks in chunkings(stream):
        passage = await Passage().follow(chunks)
        assert (passage.out, passage.held, passage.forwarder.holding) == (stream, b"", False)


async def test_each_chunk_goes_out_when_it_comes() -> None:
    """One write a chunk, as long as it completes an event."""
    events = text_stream()
    passage = Passage()
    for number, event in enumerate(events, start=1):
        await passage.forwarder.take(event[:5])
        await passage.forwarder.take(event[5:])
        assert passage.out == b"".join(events[:number])


@pytest.mark.parametrize("armed", [False, True])
async def test_usage_nobody_asked_for_is_taken_out(armed: bool) -> None:
    """The usage event goes, the reader still has it; everything else stays as it is."""
    events = [event.replace(b'"choices"', b'"usage": null, "choices"', 1) if event is not USAGE_EVENT else event for event in text_stream()]
    for chunks in chunkings(b"".join(events)):
        passage = await Passage(armed=armed, strip=True).follow(chunks)
        assert passage.out + passage.held == b"".join(event for event in text_stream() if event is not USAGE_EVENT)
        usage = passage.forwarder.reader.answer().usage
        assert usage is not None
        assert usage.input_tokens == 10


async def test_an_upstreams_broken_tail_is_passed_on() -> None:
    """What no blank line ended still goes out, and is no reason to announce an end."""
    for tail in (b'data: {"choices": [{"ind', b"data: [DO", b"\xff\xfe", b": comm"):
        stream = OPENING + delta({"content": "a"}) + tail
        for chunks in chunkings(stream):
            passage = await Passage().follow(chunks)
            assert (passage.out, passage.held) == (stream, b"")
            assert not any(isinstance(entry, Answer) for entry in passage.log)


async def test_a_stream_without_a_byte_is_nothing() -> None:
    """No write at all."""
    passage = await Passage().follow([])

    assert passage.log == []


# ---- the end


@pytest.mark.parametrize("names", [(), ("a",), tuple("abcdefghijklmnopqrstu")])
async def test_the_answer_is_announced_before_the_client_sees_its_end(names: tuple[str, ...]) -> None:
    """The store must be on its way before the client can act: however many calls come in one piece."""
    stream = b"".join(many(*names) if names else text_stream())
    for chunks in chunkings(stream):
        passage = await Passage().follow(chunks)
        (position,) = [place for place, entry in enumerate(passage.log) if isinstance(entry, Answer)]
        after = b"".join(entry for entry in passage.log[position:] if isinstance(entry, bytes))
        assert DONE in after
        announced = passage.log[position]
        assert isinstance(announced, Answer)
        assert announced == passage.forwarder.reader.answer()
        assert (announced.complete, len(announced.choices[0].calls)) == (True, len(names))


async def test_a_terminator_without_its_blank_line_is_an_end() -> None:
    """Some servers leave it out."""
    passage = await Passage().follow([*text_stream()[:-1], b"data: [DONE]"])

    assert isinstance(passage.log[-2], Answer)
    assert passage.log[-1] == b"data: [DONE]"


async def test_text_that_spells_the_terminator_is_no_end() -> None:
    """A model may well say it."""
    passage = await Passage().follow([OPENING, delta({"content": "data: [DONE]"})])

    assert not any(isinstance(entry, Answer) for entry in passage.log)


# ---- armed


async def test_an_armed_stream_is_held_from_its_first_call_on() -> None:
    """Text and comments before it go on at once; after it nothing does, not even text."""
    before = [COMMENT, OPENING, delta({"content": "Let me look."})]
    after = [begins("ls"), delta({"content": "more"}), delta({}, "tool_calls"), USAGE_EVENT, DONE]
    for chunks in chunkings(b"".join([*before, *after])):
        passage = await Passage(armed=True).follow(chunks)
        assert (passage.out, passage.held) == (b"".join(before), b"".join(after))
        assert (passage.forwarder.holding, passage.forwarder.spoke, passage.forwarder.cut) == (True, True, False)
        assert not any(isinstance(entry, Answer) for entry in passage.log)


async def test_an_armed_stream_of_text_is_held_only_at_its_end() -> None:
    """The finish may yet become a stop's."""
    passage = await Passage(armed=True).follow(text_stream())

    assert passage.out == b"".join(text_stream()[:2])
    assert passage.held == b"".join(text_stream()[2:])


async def test_a_call_in_an_unended_event_of_an_armed_stream_is_held() -> None:
    """Some clients read the last event without its blank line."""
    broken = begins("ls").rstrip(b"\n")
    passage = await Passage(armed=True).follow([OPENING + broken])

    assert (passage.out, passage.held) == (OPENING, broken)


async def test_a_comment_alone_has_not_spoken() -> None:
    """An answer that Lastcall ends must open it then."""
    passage = await Passage(armed=True).follow([COMMENT, *call_stream()[1:]])

    assert passage.out == COMMENT
    assert not passage.forwarder.spoke


async def test_a_mute_stream_is_held_from_the_start() -> None:
    """Not even text goes out before the decision."""
    for chunks in chunkings(b"".join(text_stream())):
        passage = await Passage(armed=True, mute=True).follow(chunks)
        assert (passage.log, passage.held) == ([], b"".join(text_stream()))


# ---- runaways


@pytest.mark.parametrize("gap", [b"", delta({"content": "hm"})])
async def test_a_message_that_repeats_a_tool_is_held_from_the_rung_on(gap: bytes) -> None:
    """The call at the rung does not go out before it is judged, however the stream is cut into chunks."""
    events = [OPENING, *(gap + begins("ls", position=position) for position in range(4)), delta({}, "tool_calls"), DONE]
    outcomes = [(await Passage(CUT_AT).follow(chunks)).outcome for chunks in chunkings(b"".join(events))]

    out, held, holding, spoke, cut, _ = outcomes[0]
    assert (out, held) == (b"".join(events[:3]) + gap, b"".join(events[3:])[len(gap) :])
    assert (holding, spoke, cut) == (True, True, False)
    assert all(outcome == outcomes[0] for outcome in outcomes)


async def test_a_runaway_is_cut_as_soon_as_it_is_objected_to() -> None:
    """It is asked at each new call from the rung on; after the objection nothing more is read."""
    events = many(*["ls"] * 8)
    outcomes = []
    for chunks in chunkings(b"".join(events)):
        passage = await Passage(CUT_AT, object_at=5).follow(chunks)
        outcomes.append(passage.outcome)
        assert passage.asked == [3, 4, 5]
        assert passage.forwarder.cut
        assert (passage.out, passage.held) == (b"".join(events[:3]), b"".join(events[3:6]))

    assert all(outcome == outcomes[0] for outcome in outcomes)


async def test_fragments_of_a_call_are_not_asked_about() -> None:
    """Only a new call can change the verdict."""
    arguments = [delta({"tool_calls": [{"index": 2, "function": {"arguments": "x"}}]})] * 20
    passage = await Passage(CUT_AT).follow([*many("ls", "ls", "ls")[:4], *arguments])

    assert passage.asked == [3]


@pytest.mark.parametrize("policy", [Policy(mode=Mode.OBSERVE, ladders=CUT_AT.ladders), Policy(ladders={})])
async def test_without_a_rung_to_enforce_nothing_is_held(policy: Policy) -> None:
    """Observation never stands in a stream's way."""
    events = many(*["ls"] * 30)
    passage = await Passage(policy, object_at=1).follow(events)

    assert (passage.out, passage.asked) == (b"".join(events), [])


async def test_a_message_of_very_many_calls_is_not_looked_at_after_each() -> None:
    """Every look is at all calls so far: they get further apart, so that the work stays in proportion to the stream."""
    passage = await Passage(CUT_AT, object_at=1000).follow([*(begins("ls", position=at) for at in range(500)), DONE])

    assert passage.asked[:6] == [3, 4, 5, 6, 7, 8]
    assert len(passage.asked) < 60
    assert passage.asked[-1] > 440
