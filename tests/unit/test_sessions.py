"""Sessions on a store in memory, its clock and ids in the test's hand: found again, opened, reserved for, committed, and done without."""

import asyncio
from typing import Any

import pytest

from proxy.identity import Identity, Tighten
from proxy.models import Choice, ToolCall
from proxy.policy import Canonical, Policy, Scope
from proxy.sessions import Session
from proxy.state import load
from proxy.store import Committed
from tests.in_process import looping, request
from tests.sessions import CHAT, ENOUGH, FIRST, LONG, LS, World, calls, says

RANDOM_LS = ToolCall("call_9fJ2kQx81LbV", "ls", "{}")


def looped(call: ToolCall) -> list[dict[str, Any]]:
    """A history in which this call was made and answered."""
    function = {"name": call.name, "arguments": call.arguments}
    message = {"role": "assistant", "content": None, "tool_calls": [{"id": call.id, "type": "function", "function": function}]}
    return [*FIRST, message, {"role": "tool", "tool_call_id": call.id, "content": "a.txt"}]


# ---- named


async def test_a_name_finds_its_session_again() -> None:
    """Whatever the history says; the label is the name."""
    world = World()
    one = await world.open(name="build-7")
    await world.commit(one, says("done"))
    other = await world.open([{"role": "user", "content": "something else"}], name="build-7")

    assert (one.key, one.label, one.named) == (other.key, "build-7", True)
    assert other.opened is not None
    assert (other.opened.ledger.steps, other.opened.step) == (1, 2)


async def test_a_name_belongs_to_its_caller() -> None:
    """Two tenants with one name share nothing."""
    world = World()
    one = await world.open(name="build-7", caller="key-a")
    await world.commit(one, says("done"))
    other = await world.open(name="build-7", caller="key-b")

    assert one.key != other.key
    assert other.opened is not None
    assert other.opened.record is None


async def test_a_named_session_goes_on_under_a_refreshed_key() -> None:
    """It is known by the answers it carries; the reservation made under the new key is given back."""
    world = World()
    one = await world.open(name="build-7", caller="old-token")
    await world.commit(one, calls(RANDOM_LS))
    later = await world.open(looped(RANDOM_LS), name="build-7", caller="new-token")

    assert later.key == one.key
    assert later.opened is not None
    assert later.opened.step == 2
    assert sorted(len(entry.book.leases) for entry in world.store._sessions.values()) == [0, 1]
    assert set(world.entry(later).book.leases) == {later.lease}


@pytest.mark.parametrize("id", ["c0", "call_0", "call_00000001", "functions.ls:0", "functions.ls2_files_v2:0", "ls_1", "toolu_12345678"])
async def test_answers_that_anybody_can_have_prove_nothing_to_another_key(id: str) -> None:
    """Two tenants may give one name to sessions that begin the same: only an id made at random tells who was there."""
    world = World()
    made = ToolCall(id, "ls2_files_v2" if "v2" in id else "ls", "{}")
    one = await world.open(name="default", caller="key-a")
    await world.commit(one, calls(made))
    other = await world.open(looped(made), name="default", caller="key-b")

    assert other.key != one.key
    assert len(world.entry(other).book.leases) == 1


async def test_a_text_answer_proves_nothing_to_another_key() -> None:
    """Models answer the same question in the same words."""
    world = World()
    one = await world.open(name="default", caller="key-a")
    await world.commit(one, says("Hello!"))
    history = [*FIRST, {"role": "assistant", "content": "Hello!"}, {"role": "user", "content": "go on then"}]
    other = await world.open(history, name="default", caller="key-b")
    found = await world.open(history, name="default", caller="key-a")

    assert other.key != one.key
    assert found.key == one.key


async def test_a_refreshed_key_without_the_sessions_answers_begins_anew() -> None:
    """The name alone proves nothing, nor do answers that another session gave."""
    world = World()
    one = await world.open(name="build-7", caller="old-token")
    await world.commit(one, calls(RANDOM_LS))
    named_otherwise = await world.open(looped(RANDOM_LS), name="build-8", caller="new-token")
    carrying_nothing = await world.open(name="build-7", caller="new-token")

    assert one.key not in (named_otherwise.key, carrying_nothing.key)


async def test_a_named_session_whose_record_went_is_opened_once() -> None:
    """Its own links lead to itself: nothing is released, nothing opened twice."""
    world = World()
    one = await world.open(name="build-7")
    session = await world.open(looping(1), name="build-7")
    links = [session.keys.chain(session.scope, session.history.seed, session.history.messages.line)]
    await world.store.commit(one.key, record=None, version=0, settlements=[], links=links, ttl=60)
    before = len(world.store.commits)
    again = await world.open(looping(1), name="build-7")

    assert again.key == one.key
    assert len(world.store.commits) == before


# ---- derived


async def test_equal_first_requests_are_sessions_of_their_own() -> None:
    """Benchmarks run one prompt many times at once."""
    world = World()
    one, other = await asyncio.gather(world.open(), world.open())

    assert one.key != other.key
    assert one.label != other.label
    assert one.label.startswith("lc-")
    assert world.store.finds == []


async def test_a_history_finds_the_session_that_gave_its_answers() -> None:
    """By the whole line of answers, with text and with calls."""
    world = World()
    one = await world.open()
    await world.commit(one, calls(LS))
    two = await world.open(looping(1))
    await world.commit(two, says("There is a.txt."))
    three = await world.open([*looping(1), {"role": "assistant", "content": "There is a.txt."}, {"role": "user", "content": "thanks"}])

    assert one.key == two.key == three.key
    assert one.label == three.label


async def test_a_history_is_looked_for_in_the_store_unless_this_process_gave_its_answers() -> None:
    """Not long ago: what is in the store lives for a while. Another process asks, and finds the same."""
    world = World()
    elsewhere = world.process()
    one = await world.open()
    await world.commit(one, calls(LS))
    assert (await world.open(looping(1))).key == one.key
    assert world.store.finds == []

    assert (await world.open(looping(1), sessions=elsewhere)).key == one.key
    world.clock.now += 1801
    assert (await world.open(looping(1))).key == one.key
    assert len(world.store.finds) == 2
    world.clock.now += 3601
    assert (await world.open(looping(1))).key != one.key


async def test_a_task_that_is_run_again_elsewhere_has_a_session_of_its_own() -> None:
    """Which this process finds in the store: what it gave as an answer itself it trusts only as the newest of a session."""
    world = World()
    elsewhere = world.process()
    begun = [*one_said("hi", "list it"), {"role": "user", "content": "more"}]
    await world.commit(await world.open(), says("hi"))
    await world.commit(await world.open(begun), says("ho"))
    again = await world.open(sessions=elsewhere)
    await world.commit(again, says("hi"), sessions=elsewhere)

    assert (await world.open(begun)).key == again.key


async def test_what_the_store_did_not_take_leads_nowhere() -> None:
    """An answer whose commit failed, as if it had never been given."""
    world = World()
    one = await world.open()
    world.store.down = True
    await world.commit(one, calls(LS))
    world.store.down = False
    world.clock.now += 2

    assert (await world.open(looping(1))).key != one.key


async def test_of_links_the_newest_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few, where there is room for few: the others are looked for."""
    monkeypatch.setattr("proxy.links._MOST_STORED", 2)
    world = World()
    sessions = [await world.open([{"role": "user", "content": f"task {number}"}]) for number in range(3)]
    for one in sessions:
        await world.commit(one, says("hi"))
    for number in (2, 1, 0):
        messages = [*one_said("hi", f"task {number}"), {"role": "user", "content": "more"}]
        assert (await world.open(messages)).key == sessions[number].key
        assert len(world.store.finds) == (number == 0)


def one_said(text: str, task: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": task}, {"role": "assistant", "content": text}]


async def test_a_text_answer_alone_links_its_history() -> None:
    """Also one too short for a passage."""
    world = World()
    one = await world.open()
    await world.commit(one, says("hi"))
    two = await world.open([*FIRST, {"role": "assistant", "content": "hi"}, {"role": "user", "content": "more"}])
    stranger = await world.open([*FIRST, {"role": "assistant", "content": "ho"}, {"role": "user", "content": "more"}])

    assert two.key == one.key
    assert stranger.key != one.key


async def test_any_choice_of_an_answer_links_its_history() -> None:
    """The client goes on from one of them."""
    world = World()
    one = await world.open()
    await world.commit(one, says("first"), says("second"))
    for text in ("first", "second"):
        found = await world.open([*FIRST, {"role": "assistant", "content": text}, {"role": "user", "content": "go"}])
        assert found.key == one.key


async def test_a_call_id_finds_its_session_where_the_line_of_answers_does_not() -> None:
    """The client changed the first user text; an id, its name and its arguments are proof enough together."""
    world = World()
    one = await world.open()
    await world.commit(one, calls(LS))
    changed = await world.open(looping(1, task="list it, it is noon now"))
    other_arguments = await world.open(looping(1, task="x", arguments='{"a": 1}'))

    assert changed.key == one.key
    assert other_arguments.key != one.key


async def test_calls_without_an_id_are_nobodys_proof() -> None:
    """Name and arguments are anybody's."""
    world = World()
    one = await world.open()
    await world.commit(one, calls(ToolCall(None, "ls", "{}")))
    history = looping(1, task="another")
    del history[1]["tool_calls"][0]["id"]

    assert (await world.open(history)).key != one.key


async def test_a_derived_session_is_not_found_under_another_key() -> None:
    """A copied history is another tenant's."""
    world = World()
    one = await world.open(caller="key-a")
    await world.commit(one, calls(LS))

    assert (await world.open(looping(1), caller="key-b")).key != one.key


async def test_an_answer_not_delivered_in_full_links_nothing() -> None:
    """The client cannot carry it."""
    world = World()
    one = await world.open()
    await world.commit(one, calls(LS), full=False)

    assert (await world.open(looping(1))).key != one.key


async def test_one_store_call_finds_and_one_opens() -> None:
    """The newest calls are looked up together with the chain, and not without bound."""
    world = World()
    await world.open(looping(30))

    (links,) = world.store.finds
    assert len(links) == 4


# ---- after a summary


def summarised(text: str, **first: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": f"Summary of the work so far:\n{text}. Go on with the list.", **first}]


async def compacted(world: World) -> Session:
    """A session in the middle of its run, asked for a summary, which it gave."""
    one = await world.open()
    await world.commit(one, calls(LS))
    two = await world.open(looping(1))
    await world.commit(two, calls(ToolCall("c1", "ls", "{}")))
    asking = await world.open([*looping(2), {"role": "user", "content": "Summarize the conversation so far."}])
    await world.commit(asking, says(LONG + "."), answered=False)
    return asking


async def test_a_passage_finds_the_session_after_a_summary() -> None:
    """The history is gone, a sentence of the session's own answer is quoted."""
    world = World()
    before = await compacted(world)
    after = await world.open(summarised(LONG))

    assert (after.key, after.label) == (before.key, before.label)
    assert after.opened is not None
    assert after.opened.step == 4


async def test_a_quoted_passage_that_continues_nothing_is_a_new_session() -> None:
    """Other tools, so other work; what was reserved in the old session is given back."""
    world = World()
    before = await compacted(world)
    after = await world.open(summarised(LONG), tools=None)

    assert after.key != before.key
    assert after.label != before.label
    assert len(world.entry(before).book.leases) == 0
    assert len(world.entry(after).book.leases) == 1


async def test_an_unknown_passage_is_a_new_session() -> None:
    """Looked up once."""
    world = World()
    before = await compacted(world)
    finds = len(world.store.finds)

    assert (await world.open(summarised(LONG.replace("three", "four")))).key != before.key
    assert len(world.store.finds) == finds + 1


async def test_a_named_session_keeps_no_passages() -> None:
    """Its name is enough: the one link is its line of answers."""
    world = World()
    await world.commit(await world.open(name="a"), Choice(LONG + ".", (LS,), "tool_calls"))

    ((_, _, links),) = world.store.commits
    assert len(links) == 1


# ---- opening


async def test_a_request_is_read_into_its_record() -> None:
    """Lane, run, retry mark and other requests under way are at hand for the engine."""
    world = World()
    first = await world.open(looping(2), name="a")
    second = await world.open(looping(2), name="a", lane="sub", retry=True)

    assert second.asker.lane != 0
    assert (first.asker.lane, first.asker.retry, second.asker.retry, second.asker.named) == (0, False, True, True)
    assert (first.asker.in_flight, second.asker.in_flight) == ((), (first.history.seed,))
    assert second.asker.began == world.clock.now
    assert len(second.place.trail.steps) == 2


async def test_a_scope_of_the_session_sees_all_it_did() -> None:
    """A run may be over, the trail is not."""
    world = World()
    history = [*looping(2), {"role": "assistant", "content": "done"}, {"role": "user", "content": "Something new now"}]
    run = await world.open(history, name="a")
    whole = await world.open(history, name="b", policy=Policy(scope=Scope.SESSION))

    assert len(run.place.trail.steps) < len(whole.place.trail.steps)


async def test_exact_and_loose_policies_read_with_tools_of_their_own() -> None:
    """Under one secret."""
    world = World()
    loose = await world.open(name="a")
    exact = await world.open(name="a", policy=Policy(canonical=Canonical.EXACT))
    again = await world.open(name="a")

    assert loose.prints is again.prints
    assert loose.prints is not exact.prints
    assert loose.key == exact.key


async def test_tools_of_forgotten_secrets_are_let_go() -> None:
    """A store that is emptied again and again hands out new secrets: the newest few stay."""
    world = World()
    for number in range(12):
        world.store._secret = bytes([number]) * 32
        world.clock.now += 60
        await world.open(name="a")
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    assert 1 <= len(world.sessions._prints) <= 9


async def test_who_stands_above_a_session_is_known_before_its_first_answer_is() -> None:
    """To every process: a child that begins meanwhile spends from all of them, and nothing of either is lost."""
    world = World()
    root, child, grandchild = [
        Identity("key", name, "header", None, False, Tighten(), parent=parent)
        for name, parent in (("root", None), ("child", "root"), ("grandchild", "child"))
    ]
    first = await world.sessions.open(root, CHAT.parse(request(FIRST)), ENOUGH)
    below = await world.sessions.open(child, CHAT.parse(request(FIRST)), ENOUGH)  # both are still under way
    elsewhere = world.process()
    last = await elsewhere.open(grandchild, CHAT.parse(request(FIRST)), ENOUGH)
    same = await world.process().open(grandchild, CHAT.parse(request(FIRST)), ENOUGH)
    await world.commit(last, calls(LS), sessions=elsewhere)
    await world.commit(below, says("done"))

    assert (first.line, below.line) == ((), (first.key,))
    assert last.line == same.line == (below.key, first.key)
    kept = [load(world.entry(one).record, one.keys.secret_id()) for one in (below, last)]
    assert [len(record.lanes) for record in kept] == [1, 1]
    assert [tuple(record.line) for record in kept] == [below.line, last.line]


async def test_nothing_is_lost_that_is_written_while_a_session_is_asked_for_again() -> None:
    """A process that has not seen whose child a session is asks twice; what another wrote in between is in what it goes on from."""
    world = World()
    child, anyone = [Identity("key", "child", "header", None, False, Tighten(), parent=parent) for parent in ("parent", None)]
    first = await world.sessions.open(child, CHAT.parse(request(FIRST)), ENOUGH)
    await world.commit(first, says("hm"))
    second = await world.sessions.open(child, CHAT.parse(request(FIRST)), ENOUGH)
    commit, elsewhere = world.store.commit, world.process()

    async def after_another(*given: Any, **members: Any) -> Committed:
        world.store.commit = commit  # type: ignore[method-assign]
        await world.commit(second, calls(LS))
        return await commit(*given, **members)

    world.store.commit = after_another  # type: ignore[method-assign]
    later = await elsewhere.open(anyone, CHAT.parse(request(FIRST)), ENOUGH)
    await world.commit(later, says("done"), sessions=elsewhere)

    record = load(world.entry(later).record, later.keys.secret_id())
    assert later.line == first.line != ()
    assert [call for given in record.given for call in given.calls] == [later.prints.call(LS.name, LS.arguments)]


async def test_an_answer_that_was_given_in_full_at_last_takes_the_place_of_the_one_that_was_cut() -> None:
    """In the store too, where only what is new is encoded."""
    world = World()
    await world.commit(await world.open(name="a"), calls(LS), full=False)
    session = await world.open(name="a")
    await world.commit(session, calls(LS))

    assert [given.cut for given in load(world.entry(session).record, session.keys.secret_id()).given] == [False]
