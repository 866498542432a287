"""What a call may cost before it is made, and what it cost when nobody says."""

import msgspec
import pytest

from proxy.budgets import (
    ATTACHMENT_TOKENS,
    LARGEST_OUTPUT,
    MODEST_OUTPUT,
    TEMPLATE_TOKENS,
    USEFUL_OUTPUT,
    Estimate,
    clamp,
    estimate,
    usage_of,
)
from proxy.models import Answer, Choice, Request, ToolCall, Usage


def asked(body: bytes = b"x" * 1_000, *, max_output: int | None = None, choices: int = 1) -> Request:
    return Request(body, "m", (), max_output=max_output, choices=choices)


def test_the_size_of_the_body_bounds_its_input() -> None:
    """A token is at least a byte; a chat template adds its own."""
    assert estimate(asked(b"x" * 1_000), None).input_bound == 1_000 + TEMPLATE_TOKENS


def test_a_picture_costs_what_it_may_cost_and_not_its_bytes() -> None:
    """Whether it is written out or stands behind an address."""
    request = Request(b"x" * 5_000, "m", (), attachments=3, picture_bytes=4_000)
    made = estimate(request, None)
    assert (made.input_bound, made.attached) == (1_000 + TEMPLATE_TOKENS, 3 * ATTACHMENT_TOKENS)
    assert usage_of(Answer(), request) == (Usage(250 + 3 * 1_024, 0), True)


def test_searches_of_the_web_are_counted_where_nobody_reports_them() -> None:
    """Those that an answer shows; one for each answer to a request that asks for one of a model which says nothing of it."""
    found = Choice("it is so", hosted=(ToolCall(None, "web_search", "{}"), ToolCall(None, "wiki", "{}")))
    searched = msgspec.structs.replace(asked(), searched=True)
    assert usage_of(Answer((found,)), asked())[0].searches == 1
    assert usage_of(Answer((Choice("a"), Choice("b"))), searched)[0].searches == 2
    assert usage_of(Answer((Choice("a"),), Usage(5, 2)), searched) == (Usage(5, 2, searches=1), False)
    assert usage_of(Answer((Choice("a"),), Usage(5, 2, searches=4)), searched) == (Usage(5, 2, searches=4), False)


@pytest.mark.parametrize(
    ("request_", "limit", "bounds"),
    [
        (asked(), None, (LARGEST_OUTPUT, MODEST_OUTPUT, USEFUL_OUTPUT)),
        (asked(choices=3), None, (3 * LARGEST_OUTPUT, 3 * MODEST_OUTPUT, 3 * USEFUL_OUTPUT)),
        (asked(max_output=1_000), None, (1_000, 1_000, USEFUL_OUTPUT)),
        (asked(max_output=100), None, (100, 100, 100)),
        (asked(max_output=100, choices=2), None, (200, 200, 200)),
        (asked(max_output=0), None, (0, 0, 0)),
        (asked(max_output=-5), None, (0, 0, 0)),
        (asked(), 1_000_000, (LARGEST_OUTPUT, MODEST_OUTPUT, USEFUL_OUTPUT)),
        (asked(), 16_000, (LARGEST_OUTPUT, 2_000, USEFUL_OUTPUT)),
        (asked(), 1_000, (LARGEST_OUTPUT, USEFUL_OUTPUT, USEFUL_OUTPUT)),
        (asked(), 0, (LARGEST_OUTPUT, USEFUL_OUTPUT, USEFUL_OUTPUT)),
    ],
)
def test_what_is_reserved_for_the_answer(request_: Request, limit: int | None, bounds: tuple[int, int, int]) -> None:
    """The client's own limit, for each alternative; else the largest of any model, with a modest share to fall back to."""
    made = estimate(request_, limit)
    assert made == Estimate(made.input_bound, 0, *bounds)
    assert made.floor <= made.modest <= made.output


@pytest.mark.parametrize(
    ("granted", "wanted", "choices", "sent"),
    [
        (None, 4_096, 1, None),
        (4_096, 4_096, 1, None),
        (5_000, 4_096, 1, None),
        (1_000, 4_096, 1, 1_000),
        (1_000, 4_096, 3, 333),
        (2, 4_096, 3, 1),
        (0, 4_096, 1, 1),
    ],
)
def test_the_output_limit_is_lowered_only_where_less_was_granted(granted: int | None, wanted: int, choices: int, sent: int | None) -> None:
    """Shared out among the alternatives, at least one token each."""
    assert clamp(asked(choices=choices), granted, wanted) == sent


def test_reported_usage_is_taken_as_it_is() -> None:
    """Also when it is zero."""
    answer = Answer((Choice("hello"),), Usage(10, 0))
    assert usage_of(answer, asked()) == (Usage(10, 0), False)


def test_unreported_usage_is_estimated_from_what_was_written() -> None:
    """Text, names and arguments of every alternative, in bytes, rounded up."""
    answer = Answer((Choice("héllo", (ToolCall("i", "ls", '{"p":1}'),)), Choice("\ud800")))
    assert usage_of(answer, asked(b"x" * 401)) == (Usage(101, 5), True)  # 6 + 2 + 7 + 3 bytes
    assert usage_of(Answer(), asked(b"")) == (Usage(0, 0), True)
