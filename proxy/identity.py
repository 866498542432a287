"""Whose request this is, and which session and lane it names.

An id the client sends names a session: Lastcall's own header or path first, then what known clients send, then the generic headers, then
body fields. Half of the clients send nothing; theirs is derived, from the answers their history carries (`links_of`, `passages`).
Every key and link is scoped to the caller's key, so that two tenants never meet.
"""

import re
from collections.abc import Mapping, Sequence

import msgspec

from proxy.bounded import Bounded
from proxy.errors import BadRequest
from proxy.fingerprint import Hash, framed, keyed, tied
from proxy.keys import caller_of
from proxy.known_clients import CLIENTS, SAY_MORE, STRANGER, Known, is_side_request, known_client, turn_sender
from proxy.models import ToolCall

_MAX_ID = 256
_MOST = 8_192  # of each kind of key that is remembered
_ID = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,254}[\x21-\x7e])?")
_VENDOR_SESSION = re.compile(r"x-(?!.*parent).+-session-id")
_CLAUDE_USER = re.compile(r'(?:_session_|"session_id"\s*:\s*")([0-9a-fA-F-]{8,64})(?:"|$)')  # one name, or an object written as a string


_TIGHTENING = frozenset({"x-lastcall-max-steps", "x-lastcall-max-tokens", "x-lastcall-max-cost-usd", "x-lastcall-deadline"})

_CLAUDE_PARENT = re.compile(r'"parent_session_id"\s*:\s*"([0-9a-fA-F-]{8,64})"')


class Tighten(msgspec.Struct, frozen=True, gc=False):
    """Limits a request asks for by header: steps, tokens, seconds, nano-dollars. They may only lower what the policy says."""

    steps: int | None = None
    tokens: int | None = None
    deadline: float | None = None
    cost: int | None = None


AS_IT_IS = Tighten()  # what nearly all requests are: one value, so that it is known at a glance


class Identity(msgspec.Struct, frozen=True, gc=False):
    """caller: the secret the caller showed, "" without one; never stored or logged. team: whose key it is, "" without teams.

    session: the client's id, None when it sent none. stage: a name from the configuration.
    source: where that id stood. lane: the client's own name for a line of history. retry: the client says it asks again. client: what is
    known of it. side: it says that this is no turn of its agent. parent: the session that its own is a child of. sent_by: the line of
    history that sent this one, "" for the session's own, None where nobody is known to have.
    """

    caller: str
    session: str | None
    source: str
    lane: str | None
    retry: bool
    tighten: Tighten
    team: str = ""
    stage: str | None = None
    client: Known = STRANGER
    side: bool = False
    parent: str | None = None
    sent_by: str | None = None


_GENERIC = (
    "x-session-id",
    "x-session-affinity",
    "x-affinity",  # pi, on the API of Mistral
    "x-claude-code-session-id",
    "agent-session-id",
    "goose-session-id",
    "x-roo-task-id",
    "x-kilocode-taskid",
    "x-task-id",
    "helicone-session-id",
    "langfuse-session-id",
    "langfuse_session_id",
    "x-litellm-trace-id",
    "x-portkey-trace-id",
)
_NAME_SESSIONS = frozenset(_GENERIC).union(*(client.sessions for client in CLIENTS))
# Hardly any request has one of these, and most of the time goes into looking for them one by one.
_SAY_MORE = SAY_MORE | _TIGHTENING | {"x-lastcall-lane", "x-lastcall-stage", "x-lastcall-parent", "x-parent-session-id"}
# These name a session only for clients known to mean one by them, or where a second field says the same.
_AMBIGUOUS = ("session-id", "session_id")
_BODY = ("session_id", "litellm_session_id", "metadata.session_id", "metadata.sessionId", "client_metadata.session_id", "conversation")


def identify(
    headers: Mapping[str, str],
    path_session: str | None,
    hints: Mapping[str, str],
    extra: Sequence[str],
    team: str = "",
    caller: str | None = None,
) -> Identity:
    """Reads the identity of a request. headers: lower-case names. extra: more session headers from the configuration, tried first.

    caller: the one whom these headers show, where that is known already.

    Raises `BadRequest` for an own header whose value cannot be used; other people's headers are only ignored then.
    """
    client = known_client(headers)
    session, source = _session(headers, path_session, hints, extra, client)
    retries = headers.get("x-stainless-retry-count", "0")
    retry = retries != "0" and retries.isdecimal() and retries.strip("0") != ""
    caller = caller_of(headers) if caller is None else caller
    if not hints and headers.keys().isdisjoint(_SAY_MORE):
        return Identity(caller, session, source, None, retry, AS_IT_IS, team, client=client)
    theirs, sent_by = _line(headers, hints, client)
    lane = _own(headers, "x-lastcall-lane") or theirs
    stage, parent = _own(headers, "x-lastcall-stage"), _parent(headers, hints, client)
    tighten, side = _tighten(headers), is_side_request(headers)
    if parent is not None and parent == session:  # its own session can only be above it as the line of work that sent it
        parent, sent_by = None, sent_by or (None if lane is None else "")
    return Identity(caller, session, source, lane, retry, tighten, team, stage, client, side, parent, sent_by)


def _line(headers: Mapping[str, str], hints: Mapping[str, str], client: Known) -> tuple[str | None, str | None]:
    """A client's own name for a line of history, and for the one that sent it, as in `Identity`. Codex says both in its bodies too."""
    named = _first(headers, client.lanes)[0]
    line = named or _usable(hints.get("client_metadata.thread_id"))
    if line is None:
        return None, None
    sender = _first(headers, client.senders)[0] or _usable(turn_sender(headers)) or _usable(hints.get("client_metadata.parent_thread_id"))
    if sender is None and client.sub_agents and named is not None:
        sender = ""
    return line, None if sender == line else sender


def _parent(headers: Mapping[str, str], hints: Mapping[str, str], client: Known) -> str | None:
    """The session that a client names as the parent of its own: opencode, Kilo and LiteLLM by header, Claude Code in its user id, OpenHands
    by the cache that the two share."""
    own = _own(headers, "x-lastcall-parent")
    if own is not None:
        return own
    found = _usable(headers.get("x-parent-session-id"))
    if found is None and (user := hints.get("metadata.user_id")) is not None and (named := _CLAUDE_PARENT.search(user)) is not None:
        found = named[1]
    if found is None and client.child_by_cache:
        found = _usable(hints.get("prompt_cache_key"))
    return found


def _own(headers: Mapping[str, str], name: str) -> str | None:
    value = headers.get(name)
    if value is None:
        return None
    if _ID.fullmatch(value) is None:
        raise BadRequest(
            f"header {name!r} has a value of {len(value)} characters that cannot be an id; use 1 to {_MAX_ID} printable ASCII characters"
        )
    return value


def _session(
    headers: Mapping[str, str], path_session: str | None, hints: Mapping[str, str], extra: Sequence[str], client: Known
) -> tuple[str | None, str]:
    own = _own(headers, "x-lastcall-session")
    if own is not None:
        return own, "x-lastcall-session"
    if path_session is not None:
        return path_session, "path"
    names = [name.lower() for name in extra] if extra else []
    if not headers.keys().isdisjoint(_NAME_SESSIONS):
        names += [*client.sessions, *_GENERIC]
    value, name = _first(headers, names) if names else (None, "")
    if value is not None:
        return value, name
    if "-session-id" in "\n".join(headers):
        for name, value in headers.items():
            if _VENDOR_SESSION.fullmatch(name) and len(value) >= 8 and _usable(value) is not None:
                return value, name
    found = _from_baggage(headers) if "baggage" in headers else None
    if found is None and hints:
        found = _from_body(hints, client)
    if found is None and ("session-id" in headers or "session_id" in headers):
        found = _said_twice(headers, hints)
    return found or (None, "derived")


def _first(headers: Mapping[str, str], names: Sequence[str]) -> tuple[str | None, str]:
    """The first of these headers that holds an id, with its name."""
    for name in names:
        if (value := _usable(headers.get(name))) is not None:
            return value, name
    return None, ""


def _said_twice(headers: Mapping[str, str], hints: Mapping[str, str]) -> tuple[str, str] | None:
    """An ambiguous session header whose value another field repeats, as pi and clients built on it do."""
    value, name = _first(headers, _AMBIGUOUS)
    repeated = (headers.get("x-client-request-id"), hints.get("prompt_cache_key"))
    return (value, name) if value is not None and value in repeated else None


def _from_baggage(headers: Mapping[str, str]) -> tuple[str, str] | None:
    for member in headers["baggage"].split(","):
        key, _, value = member.partition("=")
        found = _usable(value.partition(";")[0].strip())
        if key.strip() == "session.id" and found is not None:
            return found, "baggage"
    return None


def _from_body(hints: Mapping[str, str], client: Known) -> tuple[str, str] | None:
    for name in _BODY:
        value = _usable(hints.get(name))
        if value is not None:
            return value, name
    user = _CLAUDE_USER.search(hints.get("metadata.user_id", ""))
    if user is not None:
        return user.group(1), "metadata.user_id"
    bare = _usable(hints.get("metadata.user_id")) if client.user_id else None
    if bare is not None:
        return bare, "metadata.user_id"
    # A cache key may be one per application: it names a session only for clients known to make one per run.
    key = _usable(hints.get("prompt_cache_key"))
    return (key, "prompt_cache_key") if key is not None and (key.startswith("qwen-code:") or client.cache_key) else None


def _usable(value: str | None) -> str | None:
    return value if value and _ID.fullmatch(value) else None


def _tighten(headers: Mapping[str, str]) -> Tighten:
    if headers.keys().isdisjoint(_TIGHTENING):
        return AS_IT_IS
    return Tighten(
        _whole(headers, "x-lastcall-max-steps", "steps"),
        _whole(headers, "x-lastcall-max-tokens", "tokens"),
        _decimal(headers, "x-lastcall-deadline", "seconds"),
        _nano_dollars(headers, "x-lastcall-max-cost-usd"),
    )


def _whole(headers: Mapping[str, str], name: str, unit: str) -> int | None:
    value = headers.get(name)
    if value is None:
        return None
    if not value.isascii() or not value.isdecimal() or len(value) > 15:
        raise BadRequest(f"header {name!r} is {value[:40]!r}; use a whole number of {unit}, 0 for none at all")
    return int(value)


def _decimal(headers: Mapping[str, str], name: str, unit: str) -> float | None:
    value = headers.get(name)
    if value is None:
        return None
    if re.fullmatch(r"[0-9]{1,12}(?:\.[0-9]{1,6})?", value) is None:
        raise BadRequest(f"header {name!r} is {value[:40]!r}; use a number of {unit} such as 90 or 1.5")
    return float(value)


def _nano_dollars(headers: Mapping[str, str], name: str) -> int | None:
    value = _decimal(headers, name, "dollars")
    return None if value is None else round(value * 1e9)


class Keys:
    """Keys of sessions and links under one secret: 16 bytes each, scoped to a caller, not to be turned back."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._begun: dict[bytes, Hash] = {}  # by kind: beginning a keyed hash costs more than what is hashed here
        self._secret_id = int.from_bytes(self._key(b"secret")[:6], "little")
        self._named: Bounded[tuple[int, int, str], tuple[bytes, bytes, bytes]] = Bounded(_MOST)
        self._tenants: Bounded[tuple[int, str], bytes] = Bounded(_MOST)
        self._calls: Bounded[tuple[int, int, int], bytes] = Bounded(_MOST)

    def _key(self, kind: bytes, *parts: bytes | str | int) -> bytes:
        begun = self._begun.get(kind)
        if begun is None:
            begun = self._begun[kind] = keyed(self._secret, kind, 16)
        whole = begun.copy()
        whole.update(framed(parts))
        return whole.digest()

    def secret_id(self) -> int:
        """Names the secret without giving it away."""
        return self._secret_id

    def named(self, caller: str, session: str, team: str = "") -> tuple[bytes, bytes, bytes]:
        """Tenant, session key and scope of the links of a named session; cached under hashes, so that neither key nor name is kept."""
        known = hash(caller), hash(session), team  # keyed at random by the interpreter; two, that no tenant be taken for another
        found = self._named.get(known)
        if found is None:
            tenant = self.tenant(caller, team)
            found = self._named.keep(known, (tenant, self.session(tenant, session), self.named_scope(session, team)))
        return found

    def parent(self, identity: Identity) -> bytes | None:
        """The key of the session that a request names as the one above its own."""
        return None if identity.parent is None else self.named(identity.caller, identity.parent, identity.team)[1]

    def tenant(self, caller: str, team: str = "") -> bytes:
        """A team, whichever of its keys a caller shows; without teams the caller. Cached as `named` is."""
        known = hash(caller), team
        found = self._tenants.get(known)
        if found is None:
            found = self._tenants.keep(known, self._key(b"team", team) if team else self._key(b"tenant", caller))
        return found

    def session(self, tenant: bytes, session: str) -> bytes:
        return self._key(b"session", tenant, session)

    def ledger(self, team: str) -> bytes:
        """What a team spends stands under this key."""
        return self._key(b"ledger", team)

    def till(self, team: str) -> bytes:
        """The session, never seen by anybody, that makes a team's calls on routes that are not judged."""
        return self._key(b"till", team)

    def work(self, team: str, work: str) -> bytes:
        """Where it is kept that a team was charged for work that ended while nobody waited for it. work: the provider's id of it."""
        return self._key(b"work", team, work)

    def chain(self, scope: bytes, seed: int, line: Hash, said: Sequence[int] = ()) -> bytes:
        """The link of a whole line of answers, from the first user text on. said: what is to come behind the line."""
        return tied(line, [*said, seed], scope)

    def call(self, scope: bytes, call: ToolCall, fingerprint: int) -> bytes | None:
        """The link of one call, by id, name and arguments; None without an id, since name and arguments alone are anybody's.

        Cached as `named` is: what a history is looked up by comes back in its next requests.
        """
        if not call.id:
            return None
        known = hash(scope), hash((call.id, call.name)), fingerprint
        found = self._calls.get(known)
        if found is None:
            found = self._calls.keep(known, self._key(b"call", scope, call.id, call.name, fingerprint))
        return found

    def kept(self, scope: bytes, name: str) -> bytes:
        """The link of what the upstream keeps: a response, or a conversation."""
        return self._key(b"kept", scope, name)

    def passage(self, scope: bytes, text: str) -> bytes:
        return self._key(b"passage", scope, text)

    def named_scope(self, session: str, team: str = "") -> bytes:
        """Scope of the links of a named session: its id instead of the caller, so that it can go on under a refreshed key.

        Who shows the session's id and its answers, one call id made at random (`is_random`) among them, has been part of it. Between
        teams nothing goes on: a team's keys are known to be its own.
        """
        return self._key(b"named", session, team) if team else self._key(b"named", session)


_RANDOM = re.compile(r"(?=[A-Za-z]*[0-9])(?=[0-9]*[A-Za-z])[A-Za-z0-9]{8,}")


def is_random(call: ToolCall) -> bool:
    """Whether a call's id looks drawn, not counted: beside the tool's name it holds eight letters and digits in a row, of both kinds.

    Some servers count instead (`call_0`, `functions.ls:0`) and begin anew in every turn, so that anybody has the same ids.
    """
    shown = (call.id or "")[:_MAX_ID]
    return _RANDOM.search(shown.replace(call.name, " ") if call.name else shown) is not None


_LEAST = 40  # characters
_PIECE = re.compile(r"[^\n.!?]{1,2000}")  # each once, however short: looked for at every place a long one costs its length there


def passages(text: str, most: int) -> list[str]:
    """The longest pieces of a text that are long enough to be nobody else's, for finding a summary again where it is quoted."""
    if len(text) < _LEAST:
        return []
    pieces = {" ".join(piece.split()) for piece in _PIECE.findall(text[:65_536]) if len(piece) >= _LEAST}
    return sorted((piece for piece in pieces if len(piece) >= _LEAST), key=lambda piece: (-len(piece), piece))[:most]
