"""Choosing a store by its URL: the table, and what a wrong URL is told."""

import os
import time

import pytest

from proxy.errors import ConfigError
from proxy.store import Store, longest_call, open_store
from proxy.store.memory import MemoryStore
from proxy.store.redis import RedisStore


def opened(url: str) -> Store:
    return open_store(url, clock=time.time, random_bytes=os.urandom, timeout=1.0)


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("memory://", MemoryStore),
        ("redis://127.0.0.1", RedisStore),
        ("REDIS://user:p%2Fw@127.0.0.1:6379/2?max_connections=4", RedisStore),
        ("rediss://127.0.0.1?ssl_ca_certs=/etc/ca.pem", RedisStore),
        ("redis+sentinel://a,b:26380/main", RedisStore),
        ("rediss+cluster://user:p%2Fw@a,b?max_connections=8", RedisStore),
    ],
)
def test_the_scheme_chooses_the_store(url: str, kind: type[Store]) -> None:
    """Nothing is connected yet."""
    assert isinstance(opened(url), kind)


@pytest.mark.parametrize(("url", "scheme"), [("mongodb://host", "'mongodb'"), ("localhost:6379", "''"), ("", "''"), ("redis", "''")])
def test_an_unknown_scheme_is_named_with_the_choices(url: str, scheme: str) -> None:
    """The message says what was asked and what there is."""
    with pytest.raises(ConfigError, match=rf"the scheme {scheme}; use one of memory://, redis://, rediss://"):
        opened(url)


@pytest.mark.parametrize(
    "url",
    [
        "redis://:hunter2/x@host:6379",
        "redis://host?no_such_option=hunter2",
        "redis://host:hunter2",
        "redis+sentinel://:hunter2@host",
        "redis+cluster://host?no_such=hunter2",
    ],
)
def test_an_unusable_url_is_refused_without_quoting_it(url: str) -> None:
    """A mistyped password does not end in a log."""
    with pytest.raises(ConfigError, match="percent-encoded") as failure:
        opened(url)

    assert "hunter2" not in str(failure.value)
    assert failure.value.__suppress_context__


@pytest.mark.parametrize(
    ("url", "seconds"),
    [("redis://a", 0.25), ("redis+sentinel://a,b/main", 0.25), ("redis+cluster://a,b", 0.75), ("REDISS+CLUSTER://a", 0.75)],
)
def test_a_call_to_a_cluster_may_take_several_round_trips(url: str, seconds: float) -> None:
    """Each on a deadline of its own; elsewhere one is all."""
    assert longest_call(url, 0.25) == seconds
