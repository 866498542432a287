"""The command line: arguments in, exit status out. 0 is success, 1 a finding such as an invalid file, 2 wrong usage.

The one place that knows where a configuration comes from. The server, the demo and the scripted endpoint are imported by
the command that needs them: FastAPI, aiohttp and redis take 0.4 s to import, this module without them 0.1 s.
"""

import json
import os
import secrets
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from proxy import __version__
from proxy.addresses import STORE_SCHEMES
from proxy.config import Config, masked, value_of
from proxy.config import schema as config_schema
from proxy.errors import ConfigError
from proxy.keys import KEY_BYTES, digest_of, new_key
from proxy.operating import sessions, teams
from proxy.overview import in_force, warnings
from proxy.policy import Counting, policy_of
from proxy.pricelist import prices_of
from proxy.report import report_of
from proxy.report import summary as report_summary
from proxy.report import table as report_table
from proxy.source import Source

DEFAULT_FILE = Path("config.yaml")
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def _url(*schemes: str, example: str) -> Callable[[click.Context, click.Parameter, str | None], str | None]:
    """Checks an option that takes a URL, so that a slip in it is wrong usage and not a fault of the file."""

    def check(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
        if value is not None and value.split("://")[0] not in schemes:
            known = " or ".join(f"{scheme}://" for scheme in schemes)
            raise click.BadParameter(f"{masked(value)!r} does not begin with {known}; use one such as {example}")
        return value

    return check


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="lastcall")
def main() -> None:
    """An OpenAI-compatible proxy that breaks agent loops."""


@main.command()
@click.option("--config", "file", type=_FILE, help="Default: ./config.yaml, if there is one.")
@click.option("--host", help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on; 0 for any free one.")
@click.option("--workers", type=click.IntRange(1, 128), help="Processes; more than one needs a Redis store.")
@click.option(
    "--upstream",
    callback=_url("http", "https", example="http://127.0.0.1:8000/v1"),
    help="The one model endpoint, in place of those of the file.",
)
@click.option(
    "--store",
    callback=_url(*STORE_SCHEMES, example="redis://localhost:6379/0"),
    help="memory://, redis://…, redis+sentinel://… or redis+cluster://…",
)
def serve(file: Path | None, host: str | None, port: int | None, workers: int | None, upstream: str | None, store: str | None) -> None:
    """Run the proxy until it is stopped."""
    flags: dict[tuple[str, ...], object] = {
        ("server", "host"): host,
        ("server", "port"): port,
        ("server", "workers"): workers,
        ("upstreams",): {"default": {"base_url": _with_version(upstream)}} if upstream else None,
        ("store", "url"): store,
    }
    source = _source(file, {path: value for path, value in flags.items() if value is not None})
    try:
        config = _read(source)
        from proxy import app  # noqa: PLC0415 - see the module's docstring

        app.serve(config, source, on_listening=lambda url: click.echo(_greeting(url, config, source.file)))
    except ConfigError as error:
        raise click.ClickException(f"Lastcall cannot start with {source.file or 'these options'}:\n{error}") from None


@main.command("check-config")
@click.argument("file", type=_FILE)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def check_config(file: Path, as_json: bool) -> None:
    """Say what is wrong with FILE, or what is in force with it."""
    rows: dict[str, str] = {}
    cautions, faults = list[str](), list[str]()
    try:
        config = _read(_source(file))
        prices_of(config)
        rows, cautions = in_force(config), warnings(config)
    except ConfigError as error:
        faults = str(error).splitlines()
    if as_json:
        report = {"file": str(file), "valid": not faults, "faults": faults, "warnings": cautions, "in_force": rows}
        click.echo(json.dumps(report, indent=2))
    elif faults:
        click.echo("\n".join((f"{file}: not valid", *faults)), err=True)
    else:
        click.echo(f"{file}: valid")
        _print_rows(rows)
        for caution in cautions:
            click.echo(f"warning: {caution}")
    sys.exit(1 if faults else 0)


@main.command()
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def keygen(as_json: bool) -> None:
    """Print a new key for a team, and the hash of it that the configuration holds."""
    key = new_key(secrets.token_bytes(KEY_BYTES))
    if as_json:
        click.echo(json.dumps({"key": key, "hash": digest_of(key)}, indent=2))
    else:
        click.echo(f"key:  {key}\nhash: {digest_of(key)}")


@main.command()
def schema() -> None:
    """Print the JSON schema of the configuration file."""
    click.echo(json.dumps(config_schema(), indent=2))


@main.command()
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def demo(as_json: bool) -> None:
    """Run a looping agent without Lastcall and with it; needs no key and no network."""
    from proxy import demo as scene  # noqa: PLC0415 - see the module's docstring

    sys.exit(scene.run(as_json=as_json))


@main.command("mock-upstream")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=4001, show_default=True, help="Port to listen on; 0 for any free one.")
@click.option("--script", type=_FILE, help="What to answer, turn by turn; without it, the same call for ever.")
def mock_upstream(host: str, port: int, script: Path | None) -> None:
    """Serve a scripted model endpoint to point an agent at."""
    from proxy import mock  # noqa: PLC0415 - see the module's docstring

    try:
        mock.serve(host=host, port=port, script=str(script) if script else None)
    except ConfigError as error:
        raise click.ClickException(str(error)) from None


def _assignment(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[tuple[str, ...], object]:
    """`--set detectors.repeated_call.stop_at=4` as a path into the file's policy, and a value."""
    flags: dict[tuple[str, ...], object] = {}
    for one in given:
        path, equals, value = one.partition("=")
        if not equals or not all(path.split(".")):
            raise click.BadParameter(f"{one!r} is not KEY=VALUE; write it as in detectors.repeated_call.stop_at=4")
        try:
            flags[("policy", *path.removeprefix("policy.").split("."))] = value_of(value)
        except ConfigError as error:
            raise click.BadParameter(str(error)) from None
    return flags


@main.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--config", "file", type=_FILE, help="Default: ./config.yaml, if there is one.")
@click.option("--preset", type=click.Choice(["standard", "plain"]), help="In place of policy.preset of the file.")
@click.option("--counting", type=click.Choice([str(way) for way in Counting]), help="In place of policy.counting of the file.")
@click.option("--set", "flags", multiple=True, callback=_assignment, metavar="KEY=VALUE", help="A key of the policy: finish_tools=[done].")
@click.option("--all", "every", is_flag=True, help="Show the runs that would be left alone too.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def replay(
    files: tuple[str, ...],
    file: Path | None,
    preset: str | None,
    counting: str | None,
    flags: dict[tuple[str, ...], object],
    every: bool,
    as_json: bool,
) -> None:
    """Say what Lastcall would have done in recorded work, offline.

    FILES are recordings, plain or gzip, - for standard input: chat completions, Responses and Anthropic messages as request bodies, logs
    or lists of messages; Claude Code session files; Codex rollout files; SWE-agent trajectories; collected runs; lists of calls.

    Budgets are left out: they are about spending, not about loops.
    """
    from proxy import replay as work  # noqa: PLC0415 - see the module's docstring

    named = {("policy", "preset"): preset, ("policy", "counting"): counting}
    try:
        policy = policy_of(_read(_source(file, {path: value for path, value in named.items() if value is not None} | flags)).policy)
    except ConfigError as error:
        raise click.UsageError(f"{file or 'these options'}: {error}") from None
    try:
        sys.exit(work.run(files, policy, every=every, as_json=as_json))
    except OSError as error:
        raise click.UsageError(f"cannot read {error.filename}: {error.strerror}") from None


@main.command()
@click.argument("files", nargs=-1, required=True, type=click.File("rb"))
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def report(files: tuple[BinaryIO, ...], as_json: bool) -> None:
    """Say what Lastcall did, or in observe mode would have done.

    FILES are its logs, - for standard input, in the order in which they were written.
    """
    found = report_of(line for file in files for line in file)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found)).decode())
        return
    if found.rows:
        Console(width=None if sys.stdout.isatty() else 160).print(report_table(found), "")
    click.echo(report_summary(found))


main.add_command(sessions)
main.add_command(teams)


def _greeting(url: str, config: Config, file: Path | None) -> str:
    """What whoever started it needs to know; from then on the log speaks."""
    upstreams = " or ".join(dict.fromkeys(upstream.base_url for upstream in config.upstreams.values()))
    policy = f"{config.policy.preset}, {config.policy.mode}"
    return f"Lastcall listens on {url}/v1 and forwards to {upstreams}. Policy: {policy}. File: {file or 'none'}. Ctrl-C ends it."


def _default_file() -> Path | None:
    return DEFAULT_FILE if DEFAULT_FILE.is_file() else None


def _source(file: Path | None, flags: Mapping[tuple[str, ...], object] | None = None) -> Source:
    """Where the configuration in force comes from: the file (without one `./config.yaml`, without that the defaults), under the flags."""
    return Source(file or _default_file(), flags or {})


def _read(source: Source) -> Config:
    try:
        return source.read(os.environ)
    except OSError as error:
        raise click.UsageError(f"cannot read {source.file}: {error.strerror}") from None


def _with_version(url: str) -> str:
    """A bare host speaks the API under /v1, as everywhere."""
    return url.rstrip("/") + "/v1" if urlsplit(url).path in {"", "/"} else url


def _print_rows(rows: Mapping[str, str]) -> None:
    console = Console()
    if not console.is_terminal:
        click.echo("\n".join(f"{name}: {value}" for name, value in rows.items()))
        return
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in rows.items():
        table.add_row(escape(name), escape(value))
    console.print(table)
