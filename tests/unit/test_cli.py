"""The command line: which configuration a command gets, what it prints and with which status it ends."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from proxy import __version__, app, demo, mock
from proxy.cli import main
from proxy.config import Config
from proxy.errors import ConfigError
from proxy.keys import digest_of
from proxy.source import Source


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command runs in an empty folder."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Config]:
    """The configurations that `serve` was about to run with."""
    configs: list[Config] = []

    def serve(config: Config, source: Source, *, on_listening: Callable[[str], object]) -> None:
        configs.append(config)
        on_listening("http://127.0.0.1:4000")

    monkeypatch.setattr(app, "serve", serve)
    return configs


def run(*arguments: str) -> Result:
    """One command, its standard error kept apart."""
    return CliRunner().invoke(main, arguments)


def test_version_is_that_of_the_package() -> None:
    """`lastcall --version`."""
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, f"lastcall, version {__version__}\n")


def test_help_does_not_import_the_server() -> None:
    """What makes start-up slow is imported by the command that needs it."""
    code = "import sys, proxy.cli; print(sorted({'fastapi', 'aiohttp', 'redis', 'uvicorn', 'prometheus_client'} & set(sys.modules)))"
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_serve_without_a_file_runs_on_the_defaults(served: list[Config]) -> None:
    """Nothing needs to be written to try it."""
    assert run("serve").exit_code == 0
    assert served == [Config()]


def test_serve_reads_the_file_of_its_folder(served: list[Config]) -> None:
    """./config.yaml is found without a flag."""
    Path("config.yaml").write_text("server: {port: 4005}")
    assert run("serve").exit_code == 0
    assert served[0].server.port == 4005


def test_flags_override_the_file(served: list[Config], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each flag, over a named file with variables of the environment."""
    monkeypatch.setenv("LIMIT", "7")
    Path("my.yaml").write_text(
        "server: {port: 4005, workers: 1}\nupstreams: {a: {base_url: 'http://a'}}\npolicy: {budgets: {steps: '${LIMIT}'}}"
    )
    flags = ("--host", "0.0.0.0", "--port", "0", "--workers", "3", "--upstream", "http://u:1", "--store", "redis+sentinel://r/main")
    assert run("serve", "--config", "my.yaml", *flags).exit_code == 0
    (config,) = served
    assert (config.server.host, config.server.port, config.server.workers) == ("0.0.0.0", 0, 3)
    assert {name: upstream.base_url for name, upstream in config.upstreams.items()} == {"default": "http://u:1/v1"}
    assert (config.store.url, config.policy.budgets.steps) == ("redis+sentinel://r/main", 7)


def test_serve_says_where_it_listens_and_what_lies_behind(served: list[Config]) -> None:
    """One line, on standard output: the log has the other one."""
    result = run("serve", "--upstream", "http://u:1")
    assert result.stdout == (
        "Lastcall listens on http://127.0.0.1:4000/v1 and forwards to http://u:1/v1. "
        "Policy: standard, enforce. File: none. Ctrl-C ends it.\n"
    )
    assert result.stderr == ""


def test_what_cannot_be_served_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port in use, an authority's file that is not there: status 1 and a sentence."""

    def refuse(_: Config, source: Source, *, on_listening: Callable[[str], object]) -> None:
        raise ConfigError("cannot listen on 127.0.0.1:4000: taken")

    monkeypatch.setattr(app, "serve", refuse)
    Path("config.yaml").write_text("")
    result = run("serve")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "Error: Lastcall cannot start with config.yaml:\ncannot listen on 127.0.0.1:4000: taken\n"


@pytest.mark.parametrize("url", ["redis://h", "rediss://h", "redis+sentinel://a,b/main/0", "rediss+cluster://a,b"])
def test_a_store_of_any_kind_can_be_given(url: str, served: list[Config]) -> None:
    assert run("serve", "--store", url).exit_code == 0
    assert served[0].store.url == url


@pytest.mark.parametrize(
    ("given", "used"),
    [("http://h", "http://h/v1"), ("http://h/", "http://h/v1"), ("http://h/v1", "http://h/v1"), ("http://h/api/", "http://h/api")],
)
def test_a_bare_upstream_gets_its_version(given: str, used: str, served: list[Config]) -> None:
    """A path that was given is left alone."""
    assert run("serve", "--upstream", given).exit_code == 0
    assert served[0].upstreams["default"].base_url == used


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("serve", "--config", "nowhere.yaml"), "'nowhere.yaml' does not exist"),
        (("serve", "--config", "."), "'.' is a directory"),
        (("serve", "--upstream", "api.example"), "'api.example' does not begin with http:// or https://; use one such as http"),
        (("serve", "--store", "postgres://u:secret@h"), "'postgres://***@h' does not begin with memory://"),
        (("serve", "--store", "redi://h"), "; use one such as redis://localhost:6379/0"),
        (("serve", "--port", "70000"), "70000 is not in the range"),
        (("serve", "--nonsense"), "No such option"),
        (("check-config",), "Missing argument"),
        (("check-config", "nowhere.yaml"), "'nowhere.yaml' does not exist"),
        (("mock-upstream", "--script", "nowhere.json"), "'nowhere.json' does not exist"),
        (("nonsense",), "No such command"),
    ],
)
def test_wrong_usage_ends_with_2(arguments: tuple[str, ...], said: str, served: list[Config]) -> None:
    """With a message that names the slip, and nothing run."""
    result = run(*arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert not served


def test_serve_with_an_invalid_file_names_it_and_its_faults(served: list[Config]) -> None:
    """Status 1, every fault, no traceback."""
    Path("config.yaml").write_text("server: {port: -1}\npolicy: {budgets: {steps: -1}}")
    result = run("serve")
    assert result.exit_code == 1
    assert "Lastcall cannot start with config.yaml:" in result.stderr
    assert "server.port: -1 is negative" in result.stderr
    assert "policy.budgets.steps: -1 is negative" in result.stderr
    assert not served


def test_serve_with_flags_that_do_not_fit_each_other(served: list[Config]) -> None:
    """Several workers cannot share a store in one of them."""
    result = run("serve", "--workers", "2")
    assert result.exit_code == 1
    assert "with these options" in result.stderr
    assert "use a redis:// url, or one worker" in result.stderr
    assert not served


def test_a_file_that_cannot_be_read_is_wrong_usage(served: list[Config], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever may see a file may not be allowed to read it."""

    def refuse(_: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    Path("config.yaml").write_text("")
    monkeypatch.setattr(Path, "read_bytes", refuse)
    result = run("serve")
    assert (result.exit_code, served) == (2, [])
    assert "cannot read config.yaml: Permission denied" in result.stderr


def test_check_config_says_what_is_in_force() -> None:
    """In words, without secrets."""
    Path("c.yaml").write_text(
        "upstreams: {a: {base_url: 'http://h/v1', api_key: '${K}'}}\n"
        "store: {url: 'redis://:${K}@r'}\n"
        "policy: {preset: plain, budgets: {steps: 9}}"
    )
    result = CliRunner(env={"K": "very-secret"}).invoke(main, ["check-config", "c.yaml"])
    assert result.exit_code == 0
    assert result.stdout.startswith("c.yaml: valid\n")
    assert "store: redis://***@r, failure mode open" in result.stdout
    assert "upstream a: http://h/v1, a key from the environment, chat responses messages, models *" in result.stdout
    assert "detector repeated_call: nudge at 3, stop at 5" in result.stdout
    assert "cycle" not in result.stdout
    assert "budgets: steps 9, tokens unlimited, cost unlimited, deadline none" in result.stdout
    assert "very-secret" not in result.output


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("{effect: poll, nudge_at: 6, stop_at: 20}", "poll, nudge at 6, stop at 20"),
        ("{stop_at: null}", "nudge at 3, stop at no repeat"),
        ("{exempt: true}", "exempt"),
    ],
)
def test_check_config_says_what_holds_for_a_tool(rule: str, said: str) -> None:
    """Its own rungs, and the detector's where it has none."""
    Path("c.yaml").write_text(f"policy: {{tools: {{t: {rule}}}}}")
    assert f"\ntool t: {said}\n" in run("check-config", "c.yaml").stdout


def test_check_config_says_that_a_tools_detector_is_off() -> None:
    """A rule for it changes nothing then."""
    Path("c.yaml").write_text("policy: {detectors: {repeated_call: off}, tools: {t: {effect: read}}}")
    assert "\ntool t: read, repeated_call is off\n" in run("check-config", "c.yaml").stdout


def test_check_config_draws_a_table_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Aligned for people."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    Path("c.yaml").write_text("")
    result = run("check-config", "c.yaml")
    assert result.exit_code == 0
    assert re.search(r"^listens on {2,}127.0.0.1:4000, 1 worker", result.stdout, re.MULTILINE)


def test_check_config_lists_faults_and_ends_with_1() -> None:
    """On standard error."""
    Path("c.yaml").write_text("a: 1\nb: 2")
    result = run("check-config", "c.yaml")
    assert (result.exit_code, result.stdout) == (1, "")
    assert [line.split(":")[0] for line in result.stderr.splitlines()] == ["c.yaml", "a", "b"]


def test_check_config_reports_text_in_another_encoding() -> None:
    """One clear error."""
    Path("c.yaml").write_bytes(b"server: {host: '\xff'}")
    result = run("check-config", "c.yaml")
    assert result.exit_code == 1
    assert result.stderr == "c.yaml: not valid\nthe file: not UTF-8 text (byte 16); save it as UTF-8\n"


@pytest.mark.parametrize(("text", "status"), [("", 0), ("a: 1", 1)])
def test_check_config_speaks_json(text: str, status: int) -> None:
    """The same for programs."""
    Path("c.yaml").write_text(text)
    result = run("check-config", "c.yaml", "--json")
    report = json.loads(result.stdout)
    assert result.exit_code == status
    assert report["valid"] is (status == 0)
    assert (len(report["faults"]), bool(report["in_force"])) == (status, status == 0)


def test_check_config_warns_of_what_may_surprise() -> None:
    """A valid file stays valid."""
    Path("c.yaml").write_text("upstreams: {a: {base_url: 'https://h/v1', verify: false}}")
    result = run("check-config", "c.yaml")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1].startswith("warning: upstreams.a.verify: false lets anybody on the way read keys")
    assert json.loads(run("check-config", "c.yaml", "--json").stdout)["warnings"][0].startswith("upstreams.a.verify: ")


def test_keygen_prints_a_new_key_and_its_hash() -> None:
    """The one for the team, the other for the file; no two are alike."""
    lines = dict(line.split() for line in run("keygen").stdout.splitlines())
    assert lines["key:"].startswith("lc-")
    assert lines["hash:"] == digest_of(lines["key:"])
    report = json.loads(run("keygen", "--json").stdout)
    assert report["hash"] == digest_of(report["key"])
    assert report["key"] != lines["key:"]


def test_schema_is_json() -> None:
    """What an editor is pointed at."""
    result = run("schema")
    assert result.exit_code == 0
    assert "policy" in json.loads(result.stdout)["properties"]


@pytest.mark.parametrize(("arguments", "as_json"), [((), False), (("--json",), True)])
def test_demo_hands_on_its_flag_and_its_status(arguments: tuple[str, ...], as_json: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo's own verdict is the exit status."""
    asked: list[bool] = []

    def play(*, as_json: bool) -> int:
        asked.append(as_json)
        return 2

    monkeypatch.setattr(demo, "run", play)
    assert run("demo", *arguments).exit_code == 2
    assert asked == [as_json]


def test_mock_upstream_hands_on_where_and_what(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script is optional."""
    asked: list[tuple[str, int, str | None]] = []
    monkeypatch.setattr(mock, "serve", lambda *, host, port, script: asked.append((host, port, script)))
    Path("s.json").write_text("[]")
    assert run("mock-upstream").exit_code == 0
    assert run("mock-upstream", "--host", "::1", "--port", "0", "--script", "s.json").exit_code == 0
    assert asked == [("127.0.0.1", 4001, None), ("::1", 0, "s.json")]


def test_a_script_that_cannot_be_used_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its fault is shown, not its traceback."""

    def refuse(*, host: str, port: int, script: str | None) -> None:
        raise ConfigError("the script cannot be used")

    monkeypatch.setattr(mock, "serve", refuse)
    result = run("mock-upstream")
    assert (result.exit_code, result.stderr) == (1, "Error: the script cannot be used\n")
