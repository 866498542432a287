"""A passage that an answer says again and again, and sameness that is none."""

import pytest

from proxy.refrain import Refrain, refrain_of

SENTENCE = "Let me first check that the server is up and running, then look at the logs.\n"
CELL = "<td></td><td></td><td></td>\n"


@pytest.mark.parametrize(
    ("before", "passage", "times"),
    [
        ("", "ny", 40),
        ("Sure. ", "curd ", 24),
        ("", "I will now call the tool. ", 20),
        ("Well:\n\n", SENTENCE, 13),
        ("", "\n", 3000),
        ("", "-", 3000),
    ],
)
def test_a_passage_without_end_is_found(before: str, passage: str, times: int) -> None:
    """With the place where it begins: what came before is kept."""
    found = refrain_of(before + passage * times)
    assert found is not None
    assert abs(found.start - len(before)) < 2
    assert 0 < found.times <= times
    assert len(found.passage) == len(passage)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A short answer.",
        "ha" * 19,
        "I will now call the tool. " * 9,
        SENTENCE * 4,
        "-" * 300,
        "\n" * 900,
        "| a | b |\n" * 300,
        "```\n" + CELL * 300 + "```\nDone.",
        "~~~\n" + "0 " * 3000,
        "".join(f"{n}. Item number {n} of the list, with {n * 7} parts.\n" for n in range(300)),
        "".join(f"- [ ] step {n}\n" for n in range(200)),
    ],
)
def test_other_sameness_is_left_alone(text: str) -> None:
    """Few repetitions, rulers, blanks, tables, code, and lists whose lines differ."""
    assert refrain_of(text) is None
    assert not Refrain().feed(text)


def test_what_the_user_wrote_may_be_repeated_for_long() -> None:
    """People ask for a word a hundred times."""
    asked = "Write hello world 100 times"
    assert refrain_of("hello world\n" * 100, asked) is None
    assert refrain_of("hello world\n" * 100) is not None
    assert refrain_of("hello world\n" * 3000, asked) is not None


@pytest.mark.parametrize("size", [1, 3, 7, 16, 100])
@pytest.mark.parametrize(
    "text", ["Hm.\n" + "curd " * 60, "```\n" + "ab\n" * 50 + "```\n" + "ab cd\n" * 60, "x" * 33 + "ny" * 60, SENTENCE * 20]
)
def test_pieces_do_not_matter(text: str, size: int) -> None:
    """The same is found at the same place."""
    whole, pieces = Refrain(), Refrain()
    whole.feed(text)
    for at in range(0, len(text), size):
        if pieces.feed(text[at : at + size]):
            break
    assert whole.reached
    assert (pieces.reached, pieces.start, pieces.passage) == (True, whole.start, whole.passage)


def test_a_change_of_passage_begins_anew() -> None:
    """Each is counted by itself."""
    assert refrain_of("ab cd " * 12 + "Something else, then again other words. " + "ef gh " * 12) is None


@pytest.mark.parametrize("text", ["ab" * 500_000, "a" * 1_000_000, "`" * 1_000_000, "abcdefghijklmnop" * 60_000, "\n|" * 300_000])
def test_a_long_text_costs_no_more_than_its_length(text: str) -> None:
    """This would not return in time otherwise."""
    refrain_of(text, text[:4096])


def test_what_stood_too_far_back_is_no_passage() -> None:
    """It is seen, and longer than a passage may be."""
    once = "".join(f"{number:02d}" for number in range(90)) + "a row of letters and no digit"[:28]
    refrain = Refrain()

    assert len(once) == 208
    assert not refrain.feed(once * 30)
