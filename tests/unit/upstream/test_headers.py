"""Header rules, both ways: what crosses, what stays behind, what nobody can make fail."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.upstream.headers import declared_length, to_client, to_upstream, written

RAW = st.lists(st.tuples(st.binary(max_size=12), st.binary(max_size=24)), max_size=4)


@pytest.mark.parametrize(
    "name",
    [
        b"Connection",
        b"Keep-Alive",
        b"Proxy-Connection",
        b"Proxy-Authenticate",
        b"Proxy-Authorization",
        b"TE",
        b"Trailer",
        b"Transfer-Encoding",
        b"Upgrade",
        b"Host",
        b"Content-Length",
        b"Expect",
        b"Cookie",
        b"Forwarded",
        b"X-Real-IP",
        b"X-Forwarded-For",
        b"x-forwarded-prefix",
        b"x-lastcall-session",
        b"X-LastCall-Anything",
    ],
)
def test_request_fields_for_this_hop_stay_here(name: bytes) -> None:
    """Whatever its case, such a field goes no further, and its neighbours do."""
    headers = [(b"a", b"1"), (name, b"value"), (name.lower(), b"value"), (b"b", b"2")]

    assert to_upstream(headers, api_key=None, plain=False) == [("a", "1"), ("b", "2")]


def test_request_fields_pass_in_order_with_case_and_duplicates() -> None:
    """What no rule names is the client's own, to the byte."""
    headers = [
        (b"User-Agent", b"OpenAI/Python 3.57.0"),
        (b"X-Many", b"1"),
        (b"accept-encoding", b"gzip, zstd"),
        (b"content-encoding", b"zstd"),
        (b"X-Many", b"2, \t3"),
        (b"x-lastcalling", b"another word"),
        (b"x-name", "Zoë ✓".encode()),
        (b"x-empty", b""),
    ]

    assert to_upstream(headers, api_key=None, plain=False) == [(name.decode(), value.decode()) for name, value in headers]


@pytest.mark.parametrize("first", [True, False])
def test_request_fields_named_by_connection_stay_here(first: bool) -> None:
    """Named before or after, in one Connection line or several."""
    connection = [(b"connection", b"Keep-Alive, X-Hop"), (b"Connection", b"x-other ,")]
    fields = [(b"X-Hop", b"1"), (b"x-other", b"2"), (b"x-stays", b"3")]

    assert to_upstream(connection + fields if first else fields + connection, api_key=None, plain=False) == [("x-stays", "3")]


def test_a_configured_key_replaces_every_credential_of_the_client() -> None:
    """Authorization, x-api-key and api-key are dropped; the key is the only one sent."""
    headers = [(b"Authorization", b"Bearer client"), (b"X-API-Key", b"client"), (b"api-key", b"client"), (b"accept", b"*/*")]

    assert to_upstream(headers, api_key="sk-ours", plain=False) == [("accept", "*/*"), ("Authorization", "Bearer sk-ours")]


def test_a_configured_key_may_go_into_a_header_of_its_own() -> None:
    """As the messages API wants it; version and beta headers pass."""
    headers = [(b"authorization", b"Bearer client"), (b"anthropic-version", b"2023-06-01"), (b"anthropic-beta", b"a,b")]

    kept = to_upstream(headers, api_key="sk-ours", plain=False, bearer=False)
    assert kept == [("anthropic-version", "2023-06-01"), ("anthropic-beta", "a,b"), ("X-Api-Key", "sk-ours")]


def test_a_client_cannot_remove_the_configured_key() -> None:
    """Naming Authorization in Connection takes the client's away, not ours."""
    headers = [(b"connection", b"authorization"), (b"authorization", b"Bearer client")]

    assert to_upstream(headers, api_key="sk-ours", plain=False) == [("Authorization", "Bearer sk-ours")]


def test_credentials_pass_without_a_configured_key() -> None:
    """Passthrough means as they came."""
    headers = [(b"authorization", b"Bearer client"), (b"x-api-key", b"client"), (b"api-key", b"client")]

    assert to_upstream(headers, api_key=None, plain=True)[:3] == [(name.decode(), value.decode()) for name, value in headers]


def test_plain_requests_speak_and_ask_for_no_coding() -> None:
    """The body is decoded already, and the answer has to be readable."""
    headers = [(b"content-encoding", b"gzip"), (b"Accept-Encoding", b"gzip"), (b"content-type", b"application/json")]

    assert to_upstream(headers, api_key=None, plain=True) == [("content-type", "application/json"), ("Accept-Encoding", "identity")]


@pytest.mark.parametrize(
    "field",
    [
        (b"x-bad", b"a\r\nInjected: yes"),
        (b"x-bad", b"nul\x00"),
        (b"x-bad", b"\x7f"),
        (b"x-bad", b"caf\xe9"),
        (b"x bad", b"space"),
        (b"x:bad", b"colon"),
        (b"x-b\xc3\xa4d", b"not ascii"),
        (b"", b"no name"),
    ],
)
def test_request_fields_that_cannot_be_sent_as_they_came_are_left_out(field: tuple[bytes, bytes]) -> None:
    """Left out rather than altered, and never an error."""
    assert to_upstream([(b"a", b"1"), field, (b"b", b"2")], api_key=None, plain=False) == [("a", "1"), ("b", "2")]


def test_a_huge_value_passes() -> None:
    """Its size is the upstream's to judge."""
    assert to_upstream([(b"x-huge", b"v" * 1_000_000)], api_key=None, plain=False) == [("x-huge", "v" * 1_000_000)]


@given(RAW, st.booleans())
def test_no_request_field_can_break_the_message(headers: list[tuple[bytes, bytes]], plain: bool) -> None:
    """Any bytes: no error, no line break, no empty name, no second framing, no key of the client beside ours."""
    kept = to_upstream([*headers, (b"X-Api-Key", b"client")], api_key="sk-ours", plain=plain)

    assert [value for name, value in kept if name.lower() in ("authorization", "x-api-key", "api-key")] == ["Bearer sk-ours"]
    assert not [name for name, _ in kept if name.lower() in ("", "host", "content-length", "transfer-encoding", "connection")]
    assert not [field for field in kept if set("\r\n\0") & set("".join(field))]


@pytest.mark.parametrize(
    "name",
    [
        b"Connection",
        b"Keep-Alive",
        b"Transfer-Encoding",
        b"Trailer",
        b"Upgrade",
        b"Proxy-Authenticate",
        b"Set-Cookie",
        b"Alt-Svc",
        b"Strict-Transport-Security",
        b"Clear-Site-Data",
        b"X-Lastcall-Action",
    ],
)
def test_response_fields_of_the_upstream_alone_stay_behind(name: bytes) -> None:
    """Hop-by-hop fields, statements about the upstream's origin, and words that only Lastcall speaks."""
    assert to_client([(b"a", b"1"), (name, b"v"), (b"b", b"2")], plain=False) == [(b"a", b"1"), (b"b", b"2")]


def test_response_fields_pass_in_order_with_duplicates() -> None:
    """Names in lower case, values to the byte: Date, Server, obsolete text and rate limits included."""
    headers = [
        (b"Date", b"Mon, 01 Jan 2026 00:00:00 GMT"),
        (b"Server", b"cloudflare"),
        (b"X-RateLimit-Remaining", b"1"),
        (b"Vary", b"Origin"),
        (b"vary", b"Accept"),
        (b"Content-Length", b"5"),
        (b"Content-Encoding", b"gzip"),
        (b"X-Note", b"caf\xe9"),
        (b"x-should-retry", b"false"),
    ]

    assert to_client(headers, plain=False) == [(name.lower(), value) for name, value in headers]


def test_response_fields_named_by_connection_stay_behind() -> None:
    """As on the way out."""
    assert to_client([(b"X-Hop", b"1"), (b"Connection", b"close, x-hop"), (b"x", b"2")], plain=True) == [(b"x", b"2")]


@pytest.mark.parametrize(
    ("plain", "bodiless", "kept"),
    [(False, False, [b"content-length", b"content-encoding"]), (False, True, [b"content-encoding"]), (True, False, []), (True, True, [])],
)
def test_length_and_coding_stand_only_for_a_body_that_stays_as_it_is(plain: bool, bodiless: bool, kept: list[bytes]) -> None:
    """A decoded or rewritten body has neither; an answer without a body has no length."""
    headers = [(b"Content-Length", b"5"), (b"Content-Encoding", b"GZIP")]

    assert [name for name, _ in to_client(headers, plain=plain, bodiless=bodiless)] == kept


def test_a_coding_that_was_not_undone_is_still_stated() -> None:
    """The client must know that it has to decode."""
    assert to_client([(b"Content-Encoding", b"compress")], plain=True) == [(b"content-encoding", b"compress")]


@pytest.mark.parametrize("field", [(b"x-bad", b"a\nb"), (b"x bad", b"1"), (b"x(bad)", b"1"), (b"", b"1")])
def test_response_fields_that_a_server_would_refuse_are_left_out(field: tuple[bytes, bytes]) -> None:
    """An odd upstream header does not cost the client its answer."""
    assert to_client([(b"a", b"1"), field], plain=False) == [(b"a", b"1")]


@given(RAW, st.booleans())
def test_no_response_field_can_fail(headers: list[tuple[bytes, bytes]], plain: bool) -> None:
    """Any bytes in, a subset of the fields out."""
    assert set(to_client(headers, plain=plain)) <= {(name.lower(), value) for name, value in headers}


@pytest.mark.parametrize(
    ("headers", "length"),
    [
        ([(b"Content-Length", b"12")], "12"),
        ([(b"content-length", b"-1")], None),
        ([(b"content-length", b"1e3")], None),
        ([(b"content-type", b"12")], None),
        ([], None),
    ],
)
def test_declared_length_is_a_number_or_nothing(headers: list[tuple[bytes, bytes]], length: str | None) -> None:
    """Only what HTTP allows as a length counts as one."""
    assert declared_length(headers) == length


NAMES = st.sampled_from([b"a", b"X-Many", b"x-50%b", b"Connection", b"x-hop", b"Cookie", b"authorization", b"Content-Encoding", b"x bad"])
VALUES = st.sampled_from([b"", b"1", b"%b", b"Zo\xc3\xab", b"caf\xe9", b"a\r\nb", b"x-hop, close", b"Keep-Alive"])


@given(st.lists(st.tuples(NAMES, VALUES), max_size=5), st.sampled_from([None, "sk-ours"]), st.booleans(), st.booleans())
def test_written_fields_are_those_that_pass(headers: list[tuple[bytes, bytes]], api_key: str | None, plain: bool, bearer: bool) -> None:
    """As lines, whatever names and values they have, and whether or not others had the same names before."""
    passing = to_upstream(headers, api_key=api_key, plain=plain, bearer=bearer)

    assert (
        written(headers, api_key=api_key, plain=plain, bearer=bearer) == "".join(f"\r\n{name}: {value}" for name, value in passing).encode()
    )
