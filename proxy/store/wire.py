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
    commands, value = [], _link_value(session, ttl)
    for link in found_by:
        key = link_key(link)
        commands.append(Command(b"%b%d\r\n%b%b" % (_SET, len(key), key, value), key))
    return commands


@lru_cache(_SESSIONS)
def _link_value(session: bytes, ttl: float) -> bytes:
    return b"\r\n%b$2\r\nPX\r\n%b" % (field(session), field(b"%d" % milliseconds(ttl)))


def milliseconds(seconds: float) -> int:
    return int(seconds * 1000) or 1


def open_session(session: bytes, wanted: Reservation, ttl: float) -> Command:
    limits = _limits(wanted.ceilings, wanted.deadline, wanted.tighten, wanted.tighten_deadline)
    asked = _packed([milliseconds(ttl), *_call(wanted, str(wanted.tag)), *limits])
    words, key = _to_open(session)
    return Command(b"%b$%d\r\n%b\r\n" % (words, len(asked), asked), key, _OPEN)


@lru_cache(maxsize=1024)
def _limits(
    ceilings: tuple[Ceiling, ...], deadline: float | None, tighten: tuple[Ceiling, ...], tighten_deadline: float | None
) -> tuple[str | int, ...]:
    return _text_of(ceilings), _optional(deadline), _text_of(tighten), _optional(tighten_deadline), MAX_IN_FLIGHT


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
    lasts, often = _rhythm(ttl)
    arguments: list[str | int | float] = [lasts, record is not None, version, SETTLED_SECONDS, _MAX_SETTLED, often if listed else 0, 0]
    for call in settlements:
        within, stop = "|".join(call.windows) if call.windows else "", _AS_BEFORE if call.stop is None else call.stop
        arguments += (call.lease, call.steps, call.input_tokens, call.output_tokens, call.cost, call.body_bytes, within, stop, "", 0, "")
    return _commit(session, arguments, record or b"")


@lru_cache
def _rhythm(ttl: float) -> tuple[int, float]:
    """How long a session's ledger lasts, in milliseconds, and how often the index is to hear of it, in seconds."""
    return milliseconds(ttl), min(LISTED_SECONDS, ttl / 4)


def commit_accounts(session: bytes, settlements: Sequence[Settlement], ttl: float) -> list[Command]:
    """One command for each account that any of the settlements names."""
    charged: dict[bytes, tuple[Account, list[Settlement]]] = {}
    for call in settlements:
        for account in call.accounts:
            charged.setdefault(account.key, (account, []))[1].append(call)
    return [_commit_account(session, account, calls, ttl) for account, calls in charged.values()] if charged else []


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
        spent = (call.lease, call.steps, call.input_tokens, call.output_tokens, call.cost)
        arguments += (*spent, 0, "|".join(paying.windows), _AS_BEFORE, fallen, place, call.model)
    return _commit(account.key, arguments, more_keys=tuple([_usage_key(account.key, day) for day in days]))


def _commit(key: bytes, arguments: Sequence[str | int | float], record: bytes = b"", more_keys: tuple[bytes, ...] = ()) -> Command:
    words, ledger = _to_commit(key, more_keys)
    asked = _packed(arguments)
    return Command(b"%b$%d\r\n%b\r\n$%d\r\n" % (words, len(asked), asked, len(record)) + record + b"\r\n", ledger, _COMMIT)


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


class Said(msgspec.Struct, array_like=True, gc=False):
    """What open.lua says of a ledger, see there."""

    version: int
    now: float
    started: float
    counters: tuple[int, int, int, int, int, int, int, int]
    deadline: float | None
    refused: int | None
    at_once: int
    last: int | None
    step: int
    output: int | None
    bound: int
    cost: int
    in_force: str | None
    told: list[int]
    tags: list[str]
    stop: str | None
    fallen: str | None
    amended: str | None


_said = msgspec.msgpack.Decoder(Said).decode


def said_of(reply: list[Any]) -> tuple[bytes | None, Said]:
    """The record, and the rest of the answer to `open_session` or `open_account`."""
    return reply[0], _said(reply[1])


def loaded(record: bytes | None, said: Said) -> Loaded:
    """What the answer to `open_session` says of the session."""
    note = b"" if said.amended is None else _amended(said.amended)[1]
    tags = tuple(map(int, said.tags)) if said.tags else ()
    return Loaded(record, said.version, said.now, _ledger(said.counters, said.started), tags, _stopped(said.fallen), note)


def grant(said: Said, wanted: Reservation, account: Account | None = None, place: int = -1) -> Grant:
    """What the ledger of the session, or of the account at that place, says to the reservation."""
    asked = wanted.ceilings if account is None else account.ceilings or ()
    standings = _standings(asked if said.in_force is None else _ceilings(said.in_force), said.told, place)
    deadline, refused, hold, refusal = said.deadline, said.refused, None, None
    if account is not None:
        wanted = counted(wanted, account)
    if refused is None:
        hold = Hold(wanted.steps, said.bound, wanted.output if said.output is None else said.output, said.cost)
    elif refused > 0:
        refusal = refusal_by(standings, wanted, said.bound)
    elif refused == 0:
        refusal = Refusal(Kind.DEADLINE, deadline or 0.0, max(said.now - said.started, 0.0), account=place)
    elif refused == -3:
        refusal = Refusal(Kind.OPERATOR, 0, 0, account=place, mark=_amended(said.amended or "|||")[0])
    elif refused == -4:
        refusal = Refusal(Kind.SETTLED, 0, 0, account=place)
    elif account is not None:
        kind, most = (Kind.CALLS, account.calls) if refused == -1 else (Kind.SESSIONS, account.sessions)
        refusal = Refusal(kind, most or 0, said.at_once, account=place)
    ending = None if said.last is None else standings[said.last - 1]
    ends = None if deadline is None else said.started + deadline
    return Grant(said.step, said.bound, standings, deadline, ends, refusal, said.output, ending, hold, said.stop or "")


def peeked(reply: list[Any] | None) -> Peeked | None:
    """A ledger as it stands; None where there is none."""
    if reply is None:
        return None
    record, version, now, expires, started, counters, in_force, told, deadline, calls, there, stop, fallen, amended = reply
    mark, note, raised, raised_deadline = _amended((amended or b"|||").decode())
    return Peeked(
        record,
        version,
        float(now),
        float(expires),
        _ledger(counters, float(started)),
        _standings(_ceilings(in_force.decode()), told, -1),
        None if deadline is None else float(deadline),
        calls,
        there,
        "" if stop is None else stop.decode(),
        _stopped(None if fallen is None else fallen.decode()),
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
    if not ceilings:
        return ()
    used = zip(ceilings, told[::2], told[1::2], strict=True)
    return tuple([Standing(one, spent, held, account) for one, spent, held in used])


def _amended(text: str) -> tuple[Mark, bytes, tuple[Ceiling, ...], float | None]:
    mark, deadline, note, raised = text.split("|", 3)
    return Mark(mark), bytes.fromhex(note), tuple(_ceilings(raised)), float(deadline) if deadline else None


def _ledger(counters: Sequence[int], started: float) -> Ledger:
    steps, input_tokens, output_tokens, cost, held_steps, held_input, held_output, held_cost = counters
    return Ledger(steps, input_tokens, output_tokens, cost, held_steps, held_input + held_output, held_cost, started)


def _ceilings(text: str) -> list[Ceiling]:
    parts = [one.split("|") for one in text.split(";")[:-1]]
    return [Ceiling(Unit(unit), int(limit), window, float(until) if until else None) for unit, limit, until, window in parts]


def _stopped(text: str | None) -> Stopped | None:
    if text is None:
        return None
    session, _, reason = text.partition(" ")
    return Stopped(bytes.fromhex(session), reason)


def committed(reply: list[Any], sent: bytes | None) -> tuple[Committed, bool]:
    """The answer to `commit_session` of that record, and whether the index is to hear of the session."""
    conflict, version, record, unheard = reply
    return Committed(conflict == 1, record if conflict else sent, version), unheard == 1
