"""What is known of a text while it is being written."""

from proxy.markup import Scanner
from proxy.refrain import Refrain
from proxy.watch import Watch


def test_text_waits_while_it_may_become_markup() -> None:
    """And is spoiled once it is."""
    watch = Watch(Scanner(), None)
    assert watch.first
    watch.take("Hello <|python")
    assert (watch.waiting, watch.spoiled, watch.endless) == (True, False, False)
    watch.take("_tag|>x()")
    assert (watch.waiting, watch.spoiled) == (False, True)


def test_what_waits_at_the_end_is_decided() -> None:
    """It is text after all."""
    watch = Watch(Scanner(), None)
    watch.take("a <")
    watch.finish()
    assert (watch.waiting, watch.spoiled) == (False, False)


def test_a_text_may_be_followed_for_refrains_alone() -> None:
    """Then nothing waits."""
    watch = Watch(None, Refrain())
    watch.take("ny" * 40 + " <|python_tag|>")
    watch.finish()
    assert (watch.first, watch.waiting, watch.spoiled, watch.endless) == (False, False, False, True)


def test_what_was_only_thought_counts_at_the_end() -> None:
    """Where markup is looked for."""
    watch, refrains = Watch(Scanner(), None), Watch(None, Refrain())
    for each in (watch, refrains):
        each.finish()
        each.end_in_thought("I call <|python_tag|>x()")
    assert (watch.spoiled, refrains.spoiled) == (True, False)
