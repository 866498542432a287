"""Where a configuration comes from, what may change in it while calls are under way, and when its file has changed."""

import os
from pathlib import Path

import pytest

from proxy.errors import ConfigError
from proxy.source import Source, Watch, load_source

FLAGS = {("server", "port"): 4001, ("upstreams",): {"default": {"base_url": "http://u/v1"}}}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "config.yaml"
    file.write_text("policy: {budgets: {steps: 5}}")
    return file


def test_flags_go_before_the_file_and_variables_into_it(file: Path) -> None:
    """Without a file the flags stand alone."""
    file.write_text("server: {port: 1, max_body: '${SIZE}'}")

    config = Source(file, FLAGS).read({"SIZE": "1MiB"})

    assert (config.server.port, config.server.max_body, config.upstreams["default"].base_url) == (4001, 1 << 20, "http://u/v1")
    assert Source(None, FLAGS).read({}).server.port == 4001
    assert Source(None, {}).read({}).server.port == 4000


def test_a_file_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    """At start as the system's own error, later as a fault of the configuration."""
    source = Source(tmp_path / "none.yaml", {})
    with pytest.raises(FileNotFoundError):
        source.read({})
    with pytest.raises(ConfigError, match="the file: cannot be read: No such file or directory"):
        source.read_again(Source(None, {}).read({}), {})


def test_a_file_in_another_encoding_says_so(file: Path) -> None:
    """With the place."""
    file.write_bytes(b"a: \xff")
    with pytest.raises(ConfigError, match=r"not UTF-8 text \(byte 3\)"):
        Source(file, {}).read({})


def test_read_again_without_a_change_is_none(file: Path) -> None:
    """Comments, order and spelling are no change; what was left to its default is."""
    source = Source(file, {})
    current = source.read({})
    file.write_text("# the same\npolicy:\n  budgets:\n    steps: 5\n")
    assert source.read_again(current, {}) is None

    file.write_text("policy: {budgets: {steps: 5, tokens: null}}")
    assert source.read_again(current, {}) is not None


def test_read_again_gives_what_has_changed(file: Path) -> None:
    """The whole configuration, with variables as they are."""
    source = Source(file, {})
    current = source.read({})
    file.write_text("policy: {budgets: {steps: 6}}")

    changed = source.read_again(current, {})

    assert changed is not None
    assert changed.policy.budgets.steps == 6


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("server: {host: 127.0.0.2}", ["server.host"]),
        ("server: {port: 4001, metrics_port: 4002}", ["server.port", "server.metrics_port"]),
        ("server: {workers: 2}\nstore: {url: 'redis://h'}", ["server.workers", "store.url"]),
        ("store: {failure_mode: closed, timeout: 1s}", ["store.failure_mode", "store.timeout"]),
        ("session: {ttl: 1h}", ["session.ttl"]),
    ],
)
def test_what_lasts_as_long_as_the_process_is_not_changed_by_half(file: Path, text: str, keys: list[str]) -> None:
    """Nothing of such a file comes into force; every key is named."""
    source = Source(file, {})
    current = source.read({})
    file.write_text(f"{text}\npolicy: {{budgets: {{steps: 6}}}}")

    with pytest.raises(ConfigError) as caught:
        source.read_again(current, {})

    assert [line.partition(":")[0] for line in str(caught.value).splitlines()] == keys
    assert "changes only with a new start" in str(caught.value)


@pytest.mark.parametrize("flags", [{}, FLAGS])
def test_a_source_reaches_a_worker_as_it_is(file: Path, flags: dict[tuple[str, ...], object]) -> None:
    """By text; a worker may live in another folder."""
    assert load_source(Source(file, flags).dumped()) == Source(file, flags)
    assert load_source(Source(None, flags).dumped()) == Source(None, flags)


def test_a_change_is_noticed_once_and_when_it_has_come_to_rest(file: Path) -> None:
    """A file half written is not read."""
    watch = Watch(Source(file, {}))
    looks = [watch.changed()]
    for text in ("polic", "policy: {budgets: {steps: 6}}"):
        file.write_text(text)
        looks.append(watch.changed())
    looks += [watch.changed() for _ in range(3)]

    assert looks == [False, False, False, True, False, False]


def test_a_file_that_is_replaced_or_vanishes_has_changed(file: Path) -> None:
    """As a volume of Kubernetes does it, with a link that leads elsewhere."""
    link = file.parent / "link.yaml"
    link.symlink_to(file)
    watch = Watch(Source(link, {}))
    other = file.parent / "other.yaml"
    other.write_bytes(file.read_bytes())
    os.utime(other, ns=(0, file.stat().st_mtime_ns))
    link.unlink()

    assert [watch.changed(), watch.changed()] == [False, True]
    link.symlink_to(other)
    assert [watch.changed(), watch.changed(), watch.changed()] == [False, True, False]


def test_what_is_about_to_be_read_is_no_news(file: Path) -> None:
    """After a signal the same change is not read twice."""
    watch = Watch(Source(file, {}))
    file.write_text("policy: {}")
    watch.seen()

    assert [watch.changed(), watch.changed()] == [False, False]


def test_without_a_file_nothing_changes() -> None:
    """Flags do not."""
    assert not Watch(Source(None, {})).changed()
