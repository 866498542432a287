"""The quick starts of the README do what they say: their shell blocks are run as they stand, line by line.

What is put in place of what stands there: free ports for 4000 and 4001, the tests' Redis for its port 6379, and for `make` one that
takes the environment the tests run in for made. A line that starts a server is run beside the others, until its port answers.
Without a cluster and a container engine, `helm install` renders and lints, and `kubectl create` only says what it would create.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from proxy.config import load
from tests.core_coverage import REPO
from tests.platform.charts import CHART, MAJORS, Json, helm
from tests.servers import free_port

README = (REPO / "README.md").read_text()
SERVES = re.compile(r"(make run|lastcall serve|lastcall mock-upstream)\b")
ENVIRONMENT = ". .venv/bin/activate"
DEADLINE = 60.0


def section(heading: str) -> str:
    """What stands under a heading, up to the next of any level."""
    return re.split(r"^#+ ", README.split(f"{heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


def blocks(heading: str, language: str) -> str:
    """Its code blocks of one language, "" for none."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", section(heading), re.MULTILINE | re.DOTALL)
    return "".join(block for written, block in found if written == language)


def lines(heading: str) -> list[str]:
    """The commands of its shell blocks, without remarks."""
    commands = [re.sub(r"\s+# .*", "", line).strip() for line in blocks(heading, "sh").splitlines()]
    assert commands, f"no shell block under {heading!r}"
    return commands


class Shell:
    """Runs commands of the README in its folder. ports: what stands there, and what is used."""

    def __init__(self, folder: Path, ports: Mapping[int, int]) -> None:
        self._ports = ports
        self._folder = folder
        self._servers: list[subprocess.Popen[bytes]] = []
        commands = folder / "bin"
        commands.mkdir()
        lastcall = commands / "lastcall"
        lastcall.write_text(f'#!/bin/sh\nexec {sys.executable} -c "from proxy.cli import main; main()" "$@"\n')
        lastcall.chmod(0o755)
        self._environ = os.environ | {"PYTHONPATH": str(REPO), "PATH": f"{commands}:{os.environ['PATH']}"}

    def run(self, command: str) -> str:
        """What a command writes; "" for one that goes on."""
        adapted = self._adapted(command)
        if SERVES.match(command) is None:
            done = subprocess.run(
                ["bash", "-ec", adapted], cwd=REPO, env=self._environ, capture_output=True, text=True, timeout=DEADLINE, check=False
            )
            assert done.returncode == 0, f"{command}: {done.stderr}"
            return done.stdout
        with (self._folder / "servers").open("ab") as log:
            command_line = ["bash", "-c", f"exec {adapted.removesuffix('&')}"]
            self._servers.append(
                subprocess.Popen(command_line, cwd=REPO, env=self._environ, stdout=log, stderr=log, start_new_session=True)
            )
        self._wait(f"http://127.0.0.1:{self._ports[4001 if 'mock-upstream' in command else 4000]}")
        return ""

    def _adapted(self, command: str) -> str:
        if command == ENVIRONMENT:
            return "true"  # it is in force
        for written, used in self._ports.items():
            command = re.sub(rf":{written}\b", f":{used}", command)
        command = command.replace("make ", "make -o .venv/run.stamp ")
        if command.startswith("make") and "make run" in command.replace("-o .venv/run.stamp ", ""):
            return f'{command} ARGS="--port {self._ports[4000]}"'
        if "lastcall serve" in command:
            return command.replace("lastcall serve", f"lastcall serve --port {self._ports[4000]}")
        return command.replace("lastcall mock-upstream", f"lastcall mock-upstream --port {self._ports.get(4001)}")

    def _wait(self, url: str) -> None:
        deadline = time.monotonic() + DEADLINE
        while subprocess.run(["curl", "-s", "-o", os.devnull, url], check=False).returncode != 0:
            assert self._servers[-1].poll() is None and time.monotonic() < deadline, (self._folder / "servers").read_text()
            time.sleep(0.05)

    def close(self) -> None:
        for server in self._servers:
            os.killpg(server.pid, signal.SIGKILL)
        for server in self._servers:
            server.wait(DEADLINE)


@contextmanager
def shell(folder: Path, ports: Mapping[int, int]) -> Iterator[Shell]:
    opened = Shell(folder, ports)
    try:
        yield opened
    finally:
        opened.close()


needs_programs = pytest.mark.skipif(not (shutil.which("make") and shutil.which("curl")), reason="needs make and curl")


@needs_programs
def test_the_first_two_commands(tmp_path: Path) -> None:
    """The demo prints the very lines that the README shows of it, and the proxy serves."""
    with shell(tmp_path, {4000: free_port()}) as at:
        demo, run = lines("# Lastcall")[:2]
        printed = at.run(demo)
        at.run(run)

    shown = blocks("# Lastcall", "").splitlines()
    turns = [line for line in shown if re.match(r" +\d+  ", line)]
    sums = [line.split() for line in shown if re.match(r" +(tokens|cost) ", line)]
    assert (len(turns), len(sums)) == (5, 2)
    assert "\n".join(turns) in printed
    assert all(row in [line.split() for line in printed.splitlines()] for row in sums)


@needs_programs
def test_on_a_laptop(tmp_path: Path) -> None:
    """The scripted model's answer comes through the proxy, which says what was decided."""
    with shell(tmp_path, {4000: free_port(), 4001: free_port()}) as at:
        answer = [at.run(line) for line in lines("### On a laptop")][-1]

    head, _, body = answer.replace("\r\n", "\n").partition("\n\n")
    assert head.startswith("HTTP/1.1 200 ")
    assert "x-lastcall-action: allow" in head
    assert json.loads(body)["choices"][0]["message"]["content"]


@needs_programs
def test_with_redis(tmp_path: Path, redis_url: str) -> None:
    """Ready, with the store."""
    redis = urlsplit(redis_url).port
    assert redis is not None
    with shell(tmp_path, {4000: free_port(), 6379: redis}) as at:
        said = [at.run(line) for line in lines("### With Redis")][-1]

    assert json.loads(said) == {"status": "ok"}


@pytest.mark.parametrize("major", MAJORS)
def test_on_kubernetes(major: int) -> None:
    """With exactly these flags: the chart lints and renders, its configuration is valid, and its test is there to be run."""
    install = next(line for line in lines("### On Kubernetes") if line.startswith("helm install "))
    name, chart, *flags = shlex.split(install)[2:]
    assert (REPO / chart).resolve() == CHART
    linted = helm(major, "lint", CHART, *flags)
    assert linted.returncode == 0, linted.stdout + linted.stderr
    rendered = helm(major, "template", name, CHART, *flags)
    assert rendered.returncode == 0, rendered.stderr

    objects: list[Json] = [one for one in yaml.safe_load_all(rendered.stdout) if one]
    (configuration,) = [one["data"]["config.yaml"] for one in objects if one["kind"] == "ConfigMap" and "config.yaml" in one["data"]]
    (deployment,) = [one for one in objects if one["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    secrets = {one["name"]: one["valueFrom"]["secretKeyRef"] for one in container["env"] if "valueFrom" in one}
    assert secrets["REDIS_URL"]["name"] == "lastcall-redis"
    assert load(configuration, {"REDIS_URL": "redis://h"}).store.url == "redis://h"
    assert any("helm.sh/hook" in one["metadata"].get("annotations", {}) for one in objects)
    assert f"http://{name}.<namespace>/v1" in section("### On Kubernetes")


def test_every_command_for_kubernetes_is_a_known_one() -> None:
    """The image of the release is built and installed, the secret that the chart is told of is the one that is created."""
    build, secret, install, test = lines("### On Kubernetes")
    image = shlex.split(install)[shlex.split(install).index("--set") + 1].removeprefix("image.repository=")
    assert build == f"docker build -t {image}:0.1.0 . && docker push {image}:0.1.0"
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == "0.1.0"
    assert shlex.split(secret)[:5] == ["kubectl", "create", "secret", "generic", "lastcall-redis"]
    assert "redis.existingSecret=lastcall-redis" in shlex.split(install)
    assert test == f"helm test {shlex.split(install)[2]}"
    if shutil.which("kubectl"):
        done = subprocess.run(
            [*shlex.split(secret), "--dry-run=client", "--output=json"],
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": os.environ["PATH"]},
        )
        assert done.returncode == 0, done.stderr
        assert list(json.loads(done.stdout)["data"]) == ["REDIS_URL"]
