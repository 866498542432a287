"""How a reservation, a settlement and a ledger's answer are written for the scripts in `lua/`, and their replies read. No connection here.

The header of each script has the order of its keys, arguments and reply.
"""

from binascii import hexlify
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from proxy.store.command import Command, Script, begun, field, run, said
from proxy.store.contract import (
    LISTED_SECONDS,
    MAX_IN_FLIGHT,
    SETTLED_SECONDS,
    TEAM_SECONDS,
    Account,
    Amendment,
    Ceiling,
    Committed,
    Kind,
    Ledger,
    Listed,
    Listing,
    Mark,
    Page,
    Peeked,
    Refusal,
    Reservation,
    Settlement,
    Standing,
    Stopped,
    Unit,
    Usage,
)
from proxy.store.grant import Grant, Hold, Loaded, counted, has_usage, refusal_by
from proxy.store.index import Place, named_place

_pack = msgspec.msgpack.Encoder().encode

# How many settlements a ledger remembers at most. A team's hears of many calls at once.
_MAX_SETTLED = 1024
_MAX_TEAM_SETTLED = 65_536

_AS_BEFORE = "="  # stands for what the ledger knows already

_INDEX = b"lastcall:sessions"
_SEPARATOR = "\x1f"
_LOOKED_AT = 2_000  # entries of the index, for one page: what others ask of the server waits as long


_OPEN = Script.load("ledger.lua", "limits.lua", "open.lua")
_UNDO = Script.load("ledger.lua", "undo.lua")
_COMMIT = Script.load("ledger.lua", "commit.lua")
_RENEW = Script.load("renew.lua")
_AMEND = Script.load("ledger.lua", "limits.lua", "amend.lua")
_PEEK = Script.load("ledger.lua", "limits.lua", "peek.lua")
_LIST = Script.load("list.lua")
_PAGE = Script.load("page.lua")
_SET = b"*5\r\n$3\r\nSET\r\n$"
_SESSIONS = 1024  # whose commands' beginnings are kept


def link_key(link: bytes) -> bytes:
    return b"lastcall:link:" + hexlify(link)


def links(found_by: Sequence[bytes], session: bytes, ttl: float) -> list[Command]:
    """One command for each link by which the session is found."""
    if not found_by:
        return []
    value = b"\r\n%b$2\r\nPX\r\n%b" % (field(session), field(b"%d" % milliseconds(ttl)))
    commands = []
    for link in found_by:
        key = link_key(link)
        commands.append(Command(_SET + b"%d\r\n" % len(key) + key + value, key))
    return commands


def milliseconds(seconds: float) -> int:
    return int(seconds * 1000) or 1


def open_session(session: bytes, wanted: Reservation, ttl: float) -> Command:
    limits = (
        _text_of(wanted.ceilings),
        _optional(wanted.deadline),
        _text_of(wanted.tighten),
        _optional(wanted.tighten_deadline),
        MAX_IN_FLIGHT,
    )
    asked = _packed((milliseconds(ttl), *_call(wanted, str(wanted.tag)), *limits))
    words, key = _to_open(session)
    return Command(b"%b$%d\r\n%b\r\n" % (words, len(asked), asked), key, _OPEN)


@lru_cache(_SESSIONS)
def _to_open(session: bytes) -> tuple[bytes, bytes]:
    ledger, leases, _, settled = _keys(session)
    return begun(_OPEN, (ledger, leases, settled), 1), ledger


def open_account(session: bytes, account: Account, wanted: Reservation, ttl: float) -> Command:
    ledger, leases, members, settled = _keys(account.key)
    limits = (
        _AS_BEFORE if account.ceilings is None else _text_of(account.ceilings),
        _optional(account.deadline),
        *("", "", 0),
        "" if account.calls is None else account.calls,
        "" if account.sessions is None else account.sessions,
        account.idle,
        _member(session, account),
    )
    asked = _packed((_life(account, ttl), *_call(counted(wanted, account), ""), *limits))
    return run(_OPEN, (ledger, leases, settled, members), asked)


def undo(key: bytes, lease: str) -> Command:
    ledger, leases, members, _ = _keys(key)
    return run(_UNDO, (ledger, leases, members), lease)


def renew_session(session: bytes, lease: str, expires_in: float) -> Command:
    return run(_RENEW, (_keys(session)[1],), lease, expires_in)


def renew_account(session: bytes, account: Account, lease: str, expires_in: float) -> Command:
    _, leases, members, _ = _keys(account.key)
    if account.sessions is None:
        return run(_RENEW, (leases,), lease, expires_in)
    return run(_RENEW, (leases, members), lease, expires_in, account.idle, _member(session, account))


def commit_session(
    session: bytes, record: bytes | None, version: int, settlements: Sequence[Settlement], ttl: float, *, listed: bool
) -> Command:
    often = min(LISTED_SECONDS, ttl / 4) if listed else 0
    arguments: list[str | int | float] = [milliseconds(ttl), record is not None, version, SETTLED_SECONDS, _MAX_SETTLED, often, 0]
    for call in settlements:
        stop = _AS_BEFORE if call.stop is None else call.stop
        arguments += (*_cost(call), call.body_bytes, "|".join(call.windows), stop, "", 0, "")
    return _commit(session, arguments, record or b"")


def commit_accounts(session: bytes, settlements: Sequence[Settlement], ttl: float) -> list[Command]:
    """One command for each account that any of the settlements names."""
    charged: dict[bytes, tuple[Account, list[Settlement]]] = {}
    for call in settlements:
        for account in call.accounts:
            charged.setdefault(account.key, (account, []))[1].append(call)
    return [_commit_account(session, account, calls, ttl) for account, calls in charged.values()]


def _commit_account(session: bytes, account: Account, calls: Sequence[Settlement], ttl: float) -> Command:
    most = _MAX_TEAM_SETTLED if account.team else _MAX_SETTLED
    arguments: list[str | int | float] = [_life(account, ttl), False, 0, SETTLED_SECONDS, most, 0, milliseconds(TEAM_SECONDS)]
    days: list[str] = []
    for settled in calls:
        paying = next(one for one in settled.accounts if one.key == account.key)
        call = counted(settled, paying)
        fallen = f"{session.hex()} {call.stop}" if call.stop and not account.team else ""
        place = 0
        if account.team and has_usage(call):
            if call.day not in days:
                days.append(call.day)
            place = 4 + days.index(call.day)
        arguments += (*_cost(call), 0, "|".join(paying.windows), _AS_BEFORE, fallen, place, call.model)
    return _commit(account.key, arguments, more_keys=tuple([_usage_key(account.key, day) for day in days]))


def _commit(key: bytes, arguments: Sequence[str | int | float], record: bytes = b"", more_keys: tuple[bytes, ...] = ()) -> Command:
    words, ledger = _to_commit(key, more_keys)
    asked = _packed(arguments)
    return Command(b"%b$%d\r\n%b\r\n$%d\r\n%b\r\n" % (words, len(asked), asked, len(record), record), ledger, _COMMIT)


@lru_cache(_SESSIONS)
def _to_commit(key: bytes, more_keys: tuple[bytes, ...]) -> tuple[bytes, bytes]:
    ledger, leases, _, settled = _keys(key)
    return begun(_COMMIT, (ledger, leases, settled, *more_keys), 2), ledger


def enlist(session: bytes, listing: Listing, ttl: float) -> Command:
    entry = _SEPARATOR.join([session.hex(), *(text.replace(_SEPARATOR, "") for text in (listing.tenant, listing.label))])
    return run(_LIST, (_INDEX,), entry, ttl + 2 * LISTED_SECONDS)


def page(place: Place | None, count: int, tenant: str | None, search: str) -> Command:
    seen, session = ("+inf", "") if place is None else (repr(place[0]), place[1].hex())
    return run(_PAGE, (_INDEX,), seen, session, count, tenant or "", int(tenant is not None), search, _LOOKED_AT)


def peek(account: Account) -> Command:
    ledger, leases, members, _ = _keys(account.key)
    limits = _AS_BEFORE if account.ceilings is None else _text_of(account.ceilings)
    return run(_PEEK, (ledger, leases, members), limits, _optional(account.deadline))


def amend(account: Account, amendment: Amendment, ttl: float) -> Command:
    ledger, leases, _, _ = _keys(account.key)
    arguments = (
        int(amendment.reset),
        int(amendment.restore),
        _text_of(amendment.raised),
        *(_AS_BEFORE if one is None else one for one in (amendment.deadline, amendment.mark)),
        _AS_BEFORE if amendment.note is None else amendment.note.hex(),
        int(amendment.lift),
        _AS_BEFORE if amendment.seen is None else amendment.seen,
    )
    return run(_AMEND, (ledger, leases), _life(account, ttl), *arguments)


def usage(team: bytes, day: str) -> Command:
    return said("HGETALL", _usage_key(team, day))


def _usage_key(team: bytes, day: str) -> bytes:
    return _keys(team)[0].removesuffix(b"ledger") + b"usage:" + day.encode()


def _keys(key: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    """The keys of a ledger. What stands in braces makes them share a cluster slot."""
    slot = b"lastcall:{" + hexlify(key) + b"}:"
    return slot + b"ledger", slot + b"leases", slot + b"members", slot + b"settled"


def _life(account: Account, ttl: float) -> int:
    return milliseconds(TEAM_SECONDS if account.team else ttl)


def _member(session: bytes, account: Account) -> str:
    return (account.member or session).hex()


def _call(wanted: Reservation, tag: str) -> tuple[str | int | float, ...]:
    return (
        wanted.lease,
        tag,
        wanted.steps,
        wanted.body_bytes,
        wanted.input_bound,
        wanted.attached,
        wanted.output,
        wanted.modest,
        wanted.floor,
        wanted.input_price,
        wanted.output_price,
        wanted.expires_in,
        "patient" if wanted.patient else "again" if wanted.again else "",
        wanted.beside,
    )


def _cost(call: Settlement) -> tuple[str, int, int, int, int]:
    return (call.lease, call.steps, call.input_tokens, call.output_tokens, call.cost)


def _optional(limit: float | None) -> str:
    return "" if limit is None else str(limit)


def _packed(arguments: Sequence[str | int | float]) -> bytes:
    """As one argument: a command costs by how many it has, here and in the server. No bytes, which scripts cannot read from it."""
    try:
        return _pack(arguments)
    except OverflowError:  # scripts count in doubles anyway
        return _pack([float(one) if isinstance(one, int) else one for one in arguments])


@lru_cache(maxsize=1024)
def _text_of(ceilings: tuple[Ceiling, ...]) -> str:
    return "".join([f"{one.unit}|{one.limit}|{'' if one.until is None else one.until}|{one.window};" for one in ceilings])


def loaded(reply: list[Any]) -> Loaded:
    """What the answer to `open_session` says of the session."""
    record, version, now, started, counters = reply[:5]
    tags, fallen, amended = reply[15], reply[17], reply[18]
    note = b"" if amended is None else _amended(amended)[1]
    return Loaded(record, version, float(now), _ledger(counters, float(started)), tuple(map(int, tags)), _stopped(fallen), note)


def grant(reply: list[Any], wanted: Reservation, account: Account | None = None, place: int = -1) -> Grant:
    """What the ledger of the session, or of the account at that place, says to the reservation."""
    _, _, now, started, _, deadline, refused, at_once, last, step, output, bound, cost, in_force, told, _, stop, _, amended = reply
    asked = wanted.ceilings if account is None else account.ceilings or ()
    standings = _standings(asked if in_force is None else _ceilings(in_force), told, place)
    limit, ends, hold, refusal = None, None, None, None
    if deadline is not None:
        limit = float(deadline)
        ends = float(started) + limit
    if account is not None:
        wanted = counted(wanted, account)
    if refused is None:
        hold = Hold(wanted.steps, bound, wanted.output if output is None else output, cost)
    elif refused > 0:
        refusal = refusal_by(standings, wanted, bound)
    elif refused == 0:
        refusal = Refusal(Kind.DEADLINE, limit or 0.0, max(float(now) - float(started), 0.0), account=place)
    elif refused == -3:
        refusal = Refusal(Kind.OPERATOR, 0, 0, account=place, mark=_amended(amended)[0])
    elif refused == -4:
        refusal = Refusal(Kind.SETTLED, 0, 0, account=place)
    elif account is not None:
        kind, most = (Kind.CALLS, account.calls) if refused == -1 else (Kind.SESSIONS, account.sessions)
        refusal = Refusal(kind, most or 0, at_once, account=place)
    ending = None if last is None else standings[last - 1]
    return Grant(step, bound, standings, limit, ends, refusal, output, ending, hold, "" if stop is None else stop.decode())


def peeked(reply: list[Any] | None) -> Peeked | None:
    """A ledger as it stands; None where there is none."""
    if reply is None:
        return None
    record, version, now, expires, started, counters, in_force, told, deadline, calls, there, stop, fallen, amended = reply
    mark, note, raised, raised_deadline = _amended(amended or b"|||")
    return Peeked(
        record,
        version,
        float(now),
        float(expires),
        _ledger(counters, float(started)),
        _standings(_ceilings(in_force), told, -1),
        None if deadline is None else float(deadline),
        calls,
        there,
        "" if stop is None else stop.decode(),
        _stopped(fallen),
        mark,
        note,
        raised,
        raised_deadline,
        b"%b\n%b" % (amended or b"", stop or b""),
    )


def paged(reply: list[Any]) -> Page:
    more, seen, session, *found = reply
    listed = [_listed(entry.decode(), float(at)) for entry, at in zip(found[::2], found[1::2], strict=True)]
    return Page(tuple(listed), named_place(float(seen), bytes.fromhex(session.decode())) if more else "")


def usage_of(day: str, reply: list[bytes]) -> list[Usage]:
    """The rows of a day, by model."""
    rows: dict[str, dict[str, int]] = {}
    for name, amount in zip(reply[::2], reply[1::2], strict=True):
        model, _, unit = name.decode().rpartition("|")
        rows.setdefault(model, {})[unit] = int(amount)
    return [Usage(day, model, row["steps"], row["input"], row["output"], row["cost"]) for model, row in sorted(rows.items())]


def _listed(entry: str, seen: float) -> Listed:
    session, tenant, label = entry.split(_SEPARATOR)
    return Listed(bytes.fromhex(session), Listing(tenant, label), seen)


def _standings(ceilings: Sequence[Ceiling], told: list[int], account: int) -> tuple[Standing, ...]:
    used = zip(ceilings, told[::2], told[1::2], strict=True)
    return tuple([Standing(one, spent, held, account) for one, spent, held in used])


def _amended(text: bytes) -> tuple[Mark, bytes, tuple[Ceiling, ...], float | None]:
    mark, deadline, note, raised = text.split(b"|", 3)
    return Mark(mark.decode()), bytes.fromhex(note.decode()), tuple(_ceilings(raised)), float(deadline) if deadline else None


def _ledger(counters: list[int], started: float) -> Ledger:
    steps, input_tokens, output_tokens, cost, held_steps, held_input, held_output, held_cost = counters
    return Ledger(steps, input_tokens, output_tokens, cost, held_steps, held_input + held_output, held_cost, started)


def _ceilings(text: bytes) -> list[Ceiling]:
    parts = [one.split("|") for one in text.decode().split(";")[:-1]]
    return [Ceiling(Unit(unit), int(limit), window, float(until) if until else None) for unit, limit, until, window in parts]


def _stopped(text: bytes | None) -> Stopped | None:
    if text is None:
        return None
    session, _, reason = text.decode().partition(" ")
    return Stopped(bytes.fromhex(session), reason)


def committed(reply: list[Any]) -> tuple[Committed, bool]:
    """The answer to `commit_session`, and whether the index is to hear of the session."""
    conflict, version, record, unheard = reply
    return Committed(conflict == 1, record, version), unheard == 1
