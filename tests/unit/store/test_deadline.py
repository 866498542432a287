"""Deadlines of a process that may be too busy to hear an answer, and of a store that has a crowd before it."""

import asyncio
import time

import pytest

from proxy.store.deadline import LONGEST, Deadline


async def turns(count: int) -> str:
    """An answer that takes so many turns of the loop to be heard."""
    for _ in range(count):
        await asyncio.sleep(0)
    return "answer"


async def busy(seconds: float) -> None:
    """One piece of other work."""
    await asyncio.sleep(0)
    time.sleep(seconds)  # noqa: ASYNC251 - what keeps the loop busy


async def test_an_answer_in_time_is_an_answer() -> None:
    """Whatever a call raises is its own."""
    deadline = Deadline(5.0)

    async def fails() -> None:
        raise KeyError("its own")

    assert await deadline.kept(turns(3)) == "answer"
    with pytest.raises(KeyError):
        await deadline.kept(fails())


async def test_silence_is_given_up_soon_after_the_deadline() -> None:
    """By an idle process, all calls that waited, each for its own time."""
    deadline = Deadline(0.02)
    began = time.monotonic()
    ends = await asyncio.gather(*(deadline.kept(asyncio.Event().wait()) for _ in range(5)), return_exceptions=True)

    assert all(isinstance(end, TimeoutError) for end in ends)
    assert time.monotonic() - began >= 0.02


async def test_a_busy_process_is_no_silent_store() -> None:
    """An answer that came in time and could not be heard is an answer, be it after a crowd of other work."""
    asked = asyncio.create_task(Deadline(0.05).kept(asyncio.sleep(0.01, "answer")))
    await busy(0)
    await busy(0.2)

    assert await asked == "answer"


async def test_a_process_that_is_busy_in_small_pieces_is_no_silent_store() -> None:
    """Nothing is late by much, and yet an answer that takes a dozen turns of the loop to be heard takes longer than its time."""
    asked = asyncio.create_task(Deadline(0.05).kept(turns(12)))
    while not asked.done():
        await busy(0.01)

    assert await asked == "answer"


async def test_a_store_that_answers_one_after_the_other_is_not_silent() -> None:
    """Whoever is far behind in its queue waits for longer than its time; the store answers all the while."""
    deadline = Deadline(0.05)
    queue = asyncio.Lock()

    async def in_turn() -> str:
        async with queue:
            return await asyncio.sleep(0.01, "answer")

    assert await asyncio.gather(*(deadline.kept(in_turn()) for _ in range(15))) == ["answer"] * 15


async def test_silence_is_given_up_by_a_busy_process_too() -> None:
    """A deadline is put off, not for ever."""
    deadline, began = Deadline(0.02), time.monotonic()
    asked = asyncio.create_task(deadline.kept(asyncio.Event().wait()))
    while not asked.done():
        await busy(0.01)
    with pytest.raises(TimeoutError):
        await asked

    assert time.monotonic() - began >= 0.02 * LONGEST


def test_a_deadline_outlives_an_event_loop() -> None:
    """What was in doubt in another one is forgotten."""
    deadline = Deadline(0.01)

    async def cut_off() -> None:
        asked = asyncio.create_task(deadline.kept(asyncio.Event().wait()))
        await asyncio.sleep(0.015)
        asked.cancel()

    async def silence() -> None:
        with pytest.raises(TimeoutError):
            await deadline.kept(asyncio.Event().wait())

    asyncio.run(cut_off())
    asyncio.run(silence())
