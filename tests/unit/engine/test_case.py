"""One request as the engine sees it: what is decided from it, and from it again after a lost race."""

from proxy.budgets import Spending
from proxy.engine import Case, admit
from proxy.fingerprint import Fingerprints
from proxy.lanes import Asker, Place
from proxy.models import Item, Request, Role, ToolCall
from proxy.policy import Policy
from proxy.state import Record
from proxy.trail import read


def test_a_request_that_is_decided_on_twice_is_decided_on_alike() -> None:
    """What is kept of the newest messages is there already."""
    items = (Item(Role.USER, b'"go"'), Item(Role.ASSISTANT, calls=(ToolCall("1", "read", "{}"),)), Item(Role.TOOL, b'"a"', call_id="1"))
    request, prints = Request(b"{}", "m", items), Fingerprints(b"k" * 32, loose=True)
    case = Case(request, read(request, prints), prints, Policy(), Asker(), Record(1, 0), Place.nowhere())
    case.take(Record(1, 0))

    assert admit(case, Spending()) == admit(case, Spending())
