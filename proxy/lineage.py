"""Which lanes of a session stand above which: an agent and the sub-agents that it sent, as far as their client says so.

A lane whose sender stands stopped is stopped with it, and goes on with it. Branches that nobody is known to have sent stand alone.
"""

from collections.abc import Iterator

from proxy.pardon import Pardon, standing_stop
from proxy.state import Lane, Record, Stop, is_sub_agent


def stopped_above(record: Record, lane: Lane, pardon: Pardon) -> Stop | None:
    """The stop of the nearest lane above this one that stands stopped. pardon: what an operator forgave the session."""
    if not lane.sent_by:
        return None
    return next((stop for sender in _senders(record, lane) if (stop := standing_stop(sender, pardon)) is not None), None)


def stopped_below(record: Record, lane: Lane, pardon: Pardon) -> Stop | None:
    """The stop of the lane below this one that was used last of those that stand stopped; below the main one are all sub-agents."""
    last: tuple[float, Stop] | None = None
    for other in record.lanes if len(record.lanes) > 1 else ():
        stop = standing_stop(other, pardon)
        if stop is None or other is lane or (last is not None and other.used < last[0]):
            continue
        if (lane.main and is_sub_agent(other, record)) or any(sender is lane for sender in _senders(record, other)):
            last = other.used, stop
    return None if last is None else last[1]


def sender_of(record: Record, lane: Lane) -> Lane | None:
    """The lane that sent this one: of those with its name the one used last, since a line that was left sends nobody any more.

    One that is not remembered, or has no name, stands for the session's own line of work.
    """
    if not lane.sent_by:
        return None
    named = [other for other in record.lanes if other.works and other.name == lane.sent_by]
    own = named or [other for other in record.lanes if other.works and not is_sub_agent(other, record)]
    return max(own, key=lambda other: other.used, default=None)


def _senders(record: Record, lane: Lane) -> Iterator[Lane]:
    """The lanes above, the nearest first. Each once: what clients say may lead in a circle."""
    met = [lane]
    while (sender := sender_of(record, met[-1])) is not None and not any(sender is one for one in met):
        met.append(sender)
        yield sender
