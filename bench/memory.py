"""What an idle session holds: in the proxy's own memory with the in-process store, in Redis with the shared one."""

from collections import Counter

import redis

from bench.load import Conversation, converse
from bench.servers import Server
from bench.transcripts import Shape, Transcript

SESSIONS = 2_000
CALLS = 20
_SHAPE = Shape("20 calls", turns=CALLS, tools=2, system_bytes=200, result_bytes=200)
_WARM = 800  # the caches of the newest requests are full then: what a further session holds is its own
_SECONDS = 60.0


def resident(server: Server, sessions: int = SESSIONS) -> float:
    """Bytes by which a proxy with the in-process store grows per session of 20 calls."""
    _make(server, _WARM)
    before = server.resident_bytes()
    made = _make(server, sessions)
    return (server.resident_bytes() - before) / made


def stored(proxy: Server, store: Server, sessions: int = SESSIONS) -> dict[str, float]:
    """Bytes per session of 20 calls in Redis by kind of key, as MEMORY USAGE counts them. Empties the store first."""
    client = redis.Redis(port=store.port)
    client.flushall()
    made = _make(proxy, sessions)
    weights = by_kind(client)
    client.close()
    return {kind: weight / made for kind, weight in sorted(weights.items()) if kind != "secret"}


def by_kind(client: "redis.Redis") -> Counter[str]:
    """Bytes of everything that is stored, as MEMORY USAGE counts them, by kind of key."""
    keys: list[bytes] = list(client.scan_iter(match="lastcall:*", count=1_000))
    pipe = client.pipeline(transaction=False)
    for key in keys:
        pipe.memory_usage(key, samples=0)
    weights = Counter[str]()
    for key, weight in zip(keys, pipe.execute(), strict=True):
        weights[_kind(key)] += weight or 0  # None: it expired meanwhile
    return weights


def _kind(key: bytes) -> str:
    """`lastcall:{…}:session` is of the kind session, `lastcall:link:…` a link."""
    parts = key.decode().split(":")
    return parts[-1] if parts[1].startswith("{") else parts[1]


def _make(server: Server, sessions: int) -> int:
    transcript = Transcript(_SHAPE, CALLS)
    return len(converse(server.port, [Conversation(transcript, [CALLS], named=True) for _ in range(sessions)], 8, _SECONDS))
