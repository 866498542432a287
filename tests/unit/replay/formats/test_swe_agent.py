"""SWE-agent trajectories: steps as calls of one shell."""

from typing import Any

import pytest

from proxy.models import Item, Role, ToolCall
from proxy.replay.formats.swe_agent import SweAgent
from proxy.replay.recording import Unreadable

STEP = {"thought": "Look.", "action": "ls\n", "observation": "a.txt"}


def items(*steps: Any, **more: Any) -> tuple[Item, ...]:
    return SweAgent().read_whole({"trajectory": list(steps), **more}, "f").items


def test_a_step_is_a_call_and_its_result() -> None:
    """The thought is what the model said beside it."""
    assert items(STEP, STEP | {"thought": "", "response": "ls"})[:3] == (
        Item(Role.ASSISTANT, b'"Look."', (ToolCall("step0", "shell", '{"command":"ls"}'),)),
        Item(Role.TOOL, b'"a.txt"', (), "step0"),
        Item(Role.ASSISTANT, b'"ls"', (ToolCall("step1", "shell", '{"command":"ls"}'),)),
    )


def test_an_answer_without_a_command_is_a_text() -> None:
    """What it was told about that is the agent's own remark."""
    assert items({"action": " ", "response": "Hm.", "observation": "Format error"}) == (
        Item(Role.ASSISTANT, b'"Hm."'),
        Item(Role.USER, b'"Format error"'),
    )


def test_the_task_stands_before_the_steps() -> None:
    """Without demonstrations and what came later."""
    history = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "demo", "is_demo": True},
        {"role": "assistant", "content": "demo", "is_demo": True},
        {"role": "user", "content": [{"type": "text", "text": "fix it"}]},
        {"role": "assistant", "content": "Look."},
        {"role": "user", "content": "a.txt"},
    ]
    assert [item.role for item in items(STEP, history=history)] == [Role.SYSTEM, Role.USER, Role.ASSISTANT, Role.TOOL]
    assert len(items(STEP, history=[3])) == len(items(STEP, history="none")) == 2


def test_names_are_those_of_the_task() -> None:
    """Else the file's."""
    assert SweAgent().known_by({"trajectory": []})
    assert not SweAgent().known_by({"trajectory": "t"})
    assert SweAgent().read_whole({"trajectory": [], "instance_id": "i1"}, "f").id == "i1"
    assert SweAgent().read_whole({"trajectory": []}, "f").id == "f"


@pytest.mark.parametrize("step", [3, {}, {"action": None}])
def test_a_step_that_is_none_is_named(step: Any) -> None:
    """With what was expected."""
    with pytest.raises(Unreadable, match="step 2 is none: expected `action` and `observation`"):
        items(STEP, step)
