"""What is learned of an answer that was made in the background."""

from typing import Any

from proxy.chains import Delivered
from proxy.identity import Identity, Tighten
from proxy.models import Answer, Choice, ToolCall
from proxy.state import load
from tests.sessions import ENOUGH, World, calls

CALLER = Identity("key", None, "derived", None, False, Tighten())
MADE = Answer((Choice("", (ToolCall("c1", "ls", "{}"),), "completed"),), id="r1", complete=True)
USER: dict[str, Any] = {"role": "user", "content": "go"}
QUEUED = Choice("", (), "queued")


async def asked(world: World, *, name: str | None = None, choice: Choice = QUEUED) -> bytes:
    """A request whose answer is still being made. Gives the session's key."""
    session = await world.open_kept(USER, name=name)
    await world.commit(session, choice, given=Delivered("r1", choice))
    return session.key


def known(world: World, key: bytes) -> list[tuple[list[str], int]]:
    """Of each kept answer: the tools it called, and whether it is known what it says."""
    record = load(world.store._sessions[key].record, secret_id(world))
    return [([record.names[name] for name in kept.names], bool(kept.said)) for kept in record.answers]


def secret_id(world: World) -> int:
    keys, _ = next(iter(world.sessions._prints.values()))
    return keys.secret_id()


async def test_the_answer_is_part_of_its_session_once_it_is_there() -> None:
    """By name, or by its id alone; once."""
    for identity in (CALLER, Identity("key", "mine", "header", None, False, Tighten())):
        world = World()
        key = await asked(world, name=identity.session)
        assert known(world, key) == [([], False)]

        await world.sessions.learn(identity, ENOUGH, ["r1"], MADE)
        assert known(world, key) == [(["ls"], True)]
        commits = len(world.store.commits)
        await world.sessions.learn(identity, ENOUGH, ["r1"], MADE)
        assert len(world.store.commits) == commits


async def test_what_no_session_waits_for_is_nothing() -> None:
    """An answer of somebody else's, one of a session that is gone, one that was known at once; nor is anything while the store is away."""
    world = World()
    key = await asked(world, choice=calls(ToolCall("c0", "cat", "{}")))
    before = known(world, key)
    for names in (["r1"], ["r2"]):
        await world.sessions.learn(CALLER, ENOUGH, names, MADE)
    await world.sessions.learn(Identity("key", "gone", "header", None, False, Tighten()), ENOUGH, ["r1"], MADE)
    world.store.down = True
    await world.sessions.learn(CALLER, ENOUGH, ["r1"], MADE)

    assert known(world, key) == before == [(["cat"], True)]


async def test_a_race_is_tried_again_and_given_up_in_the_end() -> None:
    """Whoever wins it, the record that stands then is the one that is changed."""
    world = World()
    key = await asked(world)
    world.store.contended = True
    await world.sessions.learn(CALLER, ENOUGH, ["r1"], MADE)

    assert known(world, key) == [([], False)]
