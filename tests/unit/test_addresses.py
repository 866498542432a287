"""URLs that name several hosts: what they say, and what a wrong one is told."""

import pytest

from proxy.addresses import Layout, Place, names_several, place_of


@pytest.mark.parametrize(
    ("url", "place"),
    [
        (
            "redis+sentinel://a,b:26380/main",
            Place(Layout.SENTINEL, (("a", 26379), ("b", 26380)), "redis://a:26379/0", "main"),
        ),
        (
            "rediss+sentinel://me:p%2Fw@a:1,b:2/my%20main/3?ssl_ca_certs=/ca&sentinel_username=s&sentinel_password=p%26w",
            Place(
                Layout.SENTINEL,
                (("a", 1), ("b", 2)),
                "rediss://me:p%2Fw@a:1/3?ssl_ca_certs=%2Fca",
                "my main",
                "s",
                "p&w",
                True,
            ),
        ),
        ("REDISS+SENTINEL://a/main/?sentinel_tls=No", Place(Layout.SENTINEL, (("a", 26379),), "rediss://a:26379/0", "main")),
        ("redis+cluster://:pw@a,[::1]:7000", Place(Layout.CLUSTER, (("a", 6379), ("::1", 7000)), "redis://:pw@a:6379/0")),
        (
            "rediss+cluster://[::1]/0?max_connections=4",
            Place(Layout.CLUSTER, (("::1", 6379),), "rediss://[::1]:6379/0?max_connections=4", tls=True),
        ),
    ],
)
def test_a_url_is_taken_apart(url: str, place: Place) -> None:
    """Hosts with the layout's usual port, and what of the rest is for every server."""
    assert place_of(url) == place


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("redis+sentinel://u:hunter2@a:26379", "names no master; use one such as redis\\+sentinel://"),
        ("redis+sentinel://u:hunter2@a/main/x", "has more behind its master than"),
        ("redis+sentinel://u:hunter2@a/main/0/1", "has more behind its master than"),
        ("redis+sentinel://a/main?sentinel_pasword=hunter2", "has an option for sentinels that there is not"),
        ("redis+sentinel://a/main?sentinel_tls=hunter2", "has an option for sentinels that there is not"),
        ("redis+cluster://u:hunter2@a/1", "has a database, which clusters have not; use one such as redis\\+cluster://"),
        ("redis+cluster://a?sentinel_password=hunter2", "has an option for sentinels that there is not"),
        ("redis+cluster://u:hunter2@a,b:port", "has a host or a port that is none"),
        ("redis+cluster://u:hunter2@a,", "has a host or a port that is none"),
        ("redis+cluster://u:hunter2@a:0", "has a host or a port that is none"),
        ("redis+cluster://u:hunter2@", "has a host or a port that is none"),
    ],
)
def test_a_wrong_one_is_told_what_and_how_without_its_secrets(url: str, fault: str) -> None:
    """The message stands in a log: it quotes nothing of the URL."""
    with pytest.raises(ValueError, match=fault) as failure:
        place_of(url)

    assert "hunter2" not in str(failure.value)


def test_a_place_does_not_show_its_passwords() -> None:
    """Not even to somebody who prints it."""
    assert "hunter2" not in repr(place_of("redis+sentinel://:hunter2@a/main?sentinel_password=hunter2"))


@pytest.mark.parametrize(
    ("url", "several"), [("redis+sentinel://a/m", True), ("REDISS+Cluster://a", True), ("redis://a", False), ("a", False)]
)
def test_the_scheme_says_whether_a_url_names_several(url: str, several: bool) -> None:
    """However it is written."""
    assert names_several(url) is several
