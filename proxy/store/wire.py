"""How a reservation, a settlement and a ledger's answer are written for the scripts in `lua/`, and their replies read. No connection here.

The header of each script has the order of its keys, arguments and reply.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proxy.store.contract import (
    MAX_IN_FLIGHT,
    SETTLED_SECONDS,
    TEAM_SECONDS,
    Account,
    Ceiling,
    Committed,
    Kind,
    Ledger,
    Refusal,
    Reservation,
    Settlement,
    Standing,
    Stopped,
    Unit,
)
from proxy.store.grant import Grant, Hold, Loaded

Field = bytes | str | int | float
Command = tuple[Field, ...]

_LUA = Path(__file__).parent / "lua"

# How many settlements a ledger remembers at most. A team's hears of many calls at once.
_MAX_SETTLED = 1024
_MAX_TEAM_SETTLED = 65_536

_AS_BEFORE = "="  # stands for what the ledger knows already


@dataclass(frozen=True, slots=True)
class Script:
    """A script, by the hash a server knows it by."""

    text: bytes
    sha: str

    @classmethod
    def load(cls, *names: str) -> "Script":
        text = b"".join((_LUA / name).read_bytes() for name in names)
        return cls(text, hashlib.sha1(text, usedforsecurity=False).hexdigest())


_OPEN = Script.load("ledger.lua", "open.lua")
_UNDO = Script.load("ledger.lua", "undo.lua")
_COMMIT = Script.load("ledger.lua", "commit.lua")
_RENEW = Script.load("renew.lua")
_SCRIPTS = {script.sha: script for script in (_OPEN, _UNDO, _COMMIT, _RENEW)}


def in_full(command: Command) -> Command:
    """The same call of a script with its text in place of its hash, for a server that does not know it (yet, or any more)."""
    return (b"EVAL", _SCRIPTS[str(command[1])].text, *command[2:])


def link_key(link: bytes) -> str:
    return f"lastcall:link:{link.hex()}"


def milliseconds(seconds: float) -> int:
    return max(int(seconds * 1000), 1)


def open_session(session: bytes, wanted: Reservation, ttl: float) -> Command:
    ledger, leases, _, _ = _keys(session)
    limits = (
        _text_of(wanted.ceilings),
        _optional(wanted.deadline),
        _text_of(wanted.tighten),
        _optional(wanted.tighten_deadline),
        MAX_IN_FLIGHT,
    )
    return (b"EVALSHA", _OPEN.sha, 2, ledger, leases, milliseconds(ttl), *_call(wanted, wanted.tag), *limits)


def open_account(session: bytes, account: Account, wanted: Reservation, ttl: float) -> Command:
    ledger, leases, members, _ = _keys(account.key)
    limits = (
        _AS_BEFORE if account.ceilings is None else _text_of(account.ceilings),
        _optional(account.deadline),
        *(b"", b"", 0),
        _optional(account.calls),
        _optional(account.sessions),
        account.idle,
        _member(session, account),
    )
    return (b"EVALSHA", _OPEN.sha, 3, ledger, leases, members, _life(account, ttl), *_call(wanted, b""), *limits)


def undo(key: bytes, lease: str) -> Command:
    ledger, leases, members, _ = _keys(key)
    return (b"EVALSHA", _UNDO.sha, 3, ledger, leases, members, lease)


def renew_session(session: bytes, lease: str, expires_in: float) -> Command:
    return (b"EVALSHA", _RENEW.sha, 1, _keys(session)[1], lease, expires_in)


def renew_account(session: bytes, account: Account, lease: str, expires_in: float) -> Command:
    _, leases, members, _ = _keys(account.key)
    if account.sessions is None:
        return (b"EVALSHA", _RENEW.sha, 1, leases, lease, expires_in)
    return (b"EVALSHA", _RENEW.sha, 2, leases, members, lease, expires_in, account.idle, _member(session, account))


def commit_session(session: bytes, record: bytes | None, version: int, settlements: Sequence[Settlement], ttl: float) -> Command:
    replace: Command = (0, version, b"") if record is None else (1, version, record)
    arguments: list[Field] = [milliseconds(ttl), *replace, SETTLED_SECONDS, _MAX_SETTLED]
    for call in settlements:
        arguments += (*_cost(call), call.body_bytes, "|".join(call.windows), _AS_BEFORE if call.stop is None else call.stop, b"")
    return _commit(session, arguments)


def commit_accounts(session: bytes, settlements: Sequence[Settlement], ttl: float) -> list[Command]:
    """One command for each account that any of the settlements names."""
    charged: dict[bytes, tuple[Account, list[Field]]] = {}
    for call in settlements:
        for account in call.accounts:
            _, arguments = charged.setdefault(account.key, (account, []))
            fallen = f"{session.hex()} {call.stop}" if call.stop and not account.team else b""
            arguments += (*_cost(call), 0, "|".join(account.windows), _AS_BEFORE, fallen)
    return [
        _commit(
            account.key, [_life(account, ttl), 0, 0, b"", SETTLED_SECONDS, _MAX_TEAM_SETTLED if account.team else _MAX_SETTLED, *arguments]
        )
        for account, arguments in charged.values()
    ]


def _commit(key: bytes, arguments: Sequence[Field]) -> Command:
    ledger, leases, _, settled = _keys(key)
    return (b"EVALSHA", _COMMIT.sha, 3, ledger, leases, settled, *arguments)


def _keys(key: bytes) -> tuple[str, str, str, str]:
    """The keys of a ledger. What stands in braces makes them share a cluster slot."""
    slot = f"lastcall:{{{key.hex()}}}:"
    return f"{slot}ledger", f"{slot}leases", f"{slot}members", f"{slot}settled"


def _life(account: Account, ttl: float) -> int:
    return milliseconds(TEAM_SECONDS if account.team else ttl)


def _member(session: bytes, account: Account) -> str:
    return (account.member or session).hex()


def _call(wanted: Reservation, tag: Field) -> Command:
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
    )


def _cost(call: Settlement) -> Command:
    return (call.lease, call.steps, call.input_tokens, call.output_tokens, call.cost)


def _optional(limit: float | None) -> Field:
    return b"" if limit is None else limit


def _text_of(ceilings: tuple[Ceiling, ...]) -> str:
    return "".join([f"{one.unit}|{one.limit}|{'' if one.until is None else one.until}|{one.window};" for one in ceilings])


def loaded(reply: list[Any]) -> Loaded:
    """What the answer to `open_session` says of the session."""
    record, version, now, started, counters, *_, tags, _, fallen = reply
    return Loaded(record, version, float(now), _ledger(counters, float(started)), tuple(map(int, tags)), _stopped(fallen))


def grant(reply: list[Any], wanted: Reservation, account: Account | None = None, place: int = -1) -> Grant:
    """What the ledger of the session, or of the account at that place, says to the reservation."""
    _, _, now, started, _, deadline, refused, at_once, last, step, output, bound, cost, in_force, told, _, stop, _ = reply
    asked = wanted.ceilings if account is None else account.ceilings or ()
    ceilings = asked if in_force is None else _ceilings(in_force)
    used = [one.split() for one in told.split(b";")[:-1]]
    standings = tuple([Standing(one, int(spent), int(held), place) for one, (spent, held) in zip(ceilings, used, strict=True)])
    limit, ends, hold, refusal = None, None, None, None
    if deadline is not None:
        limit = float(deadline)
        ends = float(started) + limit
    if refused is None:
        hold = Hold(wanted.steps, bound, wanted.output if output is None else output, cost)
    elif refused > 0:
        one = standings[refused - 1]
        refusal = Refusal(Kind(one.ceiling.unit), one.ceiling.limit, one.spent, one.reserved, one.ceiling, place)
    elif refused == 0:
        refusal = Refusal(Kind.DEADLINE, limit or 0.0, max(float(now) - float(started), 0.0), account=place)
    elif account is not None:
        kind, most = (Kind.CALLS, account.calls) if refused == -1 else (Kind.SESSIONS, account.sessions)
        refusal = Refusal(kind, most or 0, at_once, account=place)
    ending = None if last is None else standings[last - 1]
    return Grant(step, bound, standings, limit, ends, refusal, output, ending, hold, "" if stop is None else stop.decode())


def _ledger(counters: bytes, started: float) -> Ledger:
    steps, input_tokens, output_tokens, cost, held_steps, held_input, held_output, held_cost = map(int, counters.split())
    return Ledger(steps, input_tokens, output_tokens, cost, held_steps, held_input + held_output, held_cost, started)


def _ceilings(text: bytes) -> list[Ceiling]:
    parts = [one.split("|") for one in text.decode().split(";")[:-1]]
    return [Ceiling(Unit(unit), int(limit), window, float(until) if until else None) for unit, limit, until, window in parts]


def _stopped(text: bytes | None) -> Stopped | None:
    if text is None:
        return None
    session, _, reason = text.decode().partition(" ")
    return Stopped(bytes.fromhex(session), reason)


def committed(reply: list[Any]) -> Committed:
    conflict, version, record = reply
    return Committed(conflict == 1, record, version)
