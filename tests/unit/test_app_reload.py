"""What the composition root does with a configuration that was read again: what is renewed, what goes on, what a failure leaves."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path

import pytest

from proxy.app import Application, _rereading, create_app
from proxy.config import Config, load
from proxy.errors import ConfigError
from proxy.exchange import Setting
from proxy.keys import digest_of
from proxy.source import Source

TWO = "upstreams: {a: {base_url: 'http://a/v1'}, b: {base_url: 'http://b/v1'}}"


class Running:
    """An application, and what it says about reading again."""

    def __init__(self, app: Application, log: list[bytes], says: list[Config]) -> None:
        self._app = app
        self._log = log
        self._says = says

    @property
    def setting(self) -> Setting:
        return self._app.front._in_force().current

    async def reload(self, text: str) -> str:
        """The outcome's log line."""
        self._says.append(load(text, {}))
        lines = len(self._log)
        os.kill(os.getpid(), signal.SIGHUP)
        async with asyncio.timeout(10):
            while len(self._log) == lines:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.005)
        return self._log[-1].decode()


@asynccontextmanager
async def running(text: str) -> AsyncIterator[Running]:
    log: list[bytes] = []
    says: list[Config] = []
    app = create_app(load(text, {}), environ={}, log=log.append, reread=lambda _: says.pop())
    assert isinstance(app, Application)
    async with app.router.lifespan_context(app):
        yield Running(app, log, says)


async def test_what_changed_is_renewed_and_what_did_not_goes_on() -> None:
    """Connections to an upstream that is still led to are kept, whatever it is called to serve; sessions and quirks as well."""
    async with running(TWO) as served:
        before = served.setting
        said = await served.reload(
            "upstreams: {a: {base_url: 'http://a/v1', models: [o3], dialects: [chat]}, b: {base_url: 'http://b2/v1'}}\n"
            f"teams: {{red: {{keys: [{digest_of('k')}]}}}}\n"
            "server: {max_body: 1MiB}\nsession: {headers: [x-mine]}"
        )
        after = served.setting

    assert '"outcome":"applied"' in said
    assert [one.upstream is other.upstream for one, other in zip(before.ways, after.ways, strict=True)] == [True, False]
    assert [way.serves("chat", "o3") for way in after.ways] == [True, True]
    assert [way.serves("chat", "gpt-5") for way in after.ways] == [False, True]
    assert (after.sessions, after.quirks, after.telemetry) == (before.sessions, before.quirks, before.telemetry)
    assert (after.max_body, after.session_headers) == (1 << 20, ("x-mine",))
    assert (before.tenants.names, after.tenants.names) == ((), ("red",))


async def test_a_failure_half_way_leaves_everything_as_it_was(tmp_path: Path) -> None:
    """A file of authorities that vanished between two looks, for instance."""
    async with running(TWO) as served:
        before = served.setting
        said = await served.reload(
            f"upstreams: {{c: {{base_url: 'https://c/v1'}}, d: {{base_url: 'https://d/v1', ca_file: {tmp_path}/none.pem}}}}"
        )

        assert served.setting is before

    assert '"outcome":"rejected"' in said
    assert "upstreams.d.ca_file" in said


def test_what_only_shows_outside_the_file_is_looked_at_before_it_is_taken(tmp_path: Path) -> None:
    """Authorities, for instance; an unchanged file is not."""
    file = tmp_path / "config.yaml"
    file.write_text("policy: {mode: observe}")
    reread = _rereading(Source(file, {}))
    config = reread(Config())
    assert config is not None
    assert reread(config) is None

    file.write_text(f"upstreams: {{a: {{base_url: 'https://a/v1', ca_file: {tmp_path}/none.pem}}}}")
    with pytest.raises(ConfigError, match=r"upstreams\.a\.ca_file"):
        reread(config)


def test_windows_of_teams_follow_the_time_zone_of_the_file() -> None:
    """As the system's tables have it."""
    teams = {"red": {"keys": [digest_of("k")], "budgets": [{"per": "day", "tokens": 5}]}}
    app = create_app(Config.model_validate({"timezone": "Asia/Tokyo", "teams": teams}), environ={}, log=lambda _: None)
    assert isinstance(app, Application)

    async def window() -> str:
        async with app.router.lifespan_context(app):
            tenant = app.front._in_force().current.tenants.of({"x-lastcall-key": "k"})
            return tenant.quota(datetime.fromisoformat("2026-11-29T20:00+00:00").timestamp()).caps[0].window

    assert asyncio.run(window()) == "day 2026-11-30+0900"
