"""The chart: it renders with Helm 3 and 4 to what Kubernetes takes, its parts agree with each other, and a slip in a value is refused."""

import copy
import os
import re
import shlex
import time
from collections.abc import Iterator
from functools import reduce
from importlib.metadata import version
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from proxy.config import Config, load
from proxy.store import open_store
from tests.platform.charts import CASES, CHART, MAJORS, helm, only, refusal, render, schema, values, with_values

OLDEST = "1.27"  # Chart.yaml's kubeVersion
NEWEST = kubernetes_validate.latest_version().rpartition(".")[0]
NOT_KUBERNETES_OWN = {"ServiceMonitor", "PrometheusRule", "HTTPRoute"}  # their schemas come with their operators
SECRETS = {"REDIS_PASSWORD": "p%40ss", "REDIS_URL": "redis://:p%40ss@redis:6379/0"}

Json = dict[str, Any]

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
by_every_helm = pytest.mark.parametrize("major", MAJORS)


def pod(objects: list[Json]) -> Json:
    spec: Json = only(objects, "Deployment")["spec"]["template"]["spec"]
    return spec


def container(objects: list[Json]) -> Json:
    found: Json = next(one for one in pod(objects)["containers"] if one["name"] == "lastcall")
    return found


@by_every_helm
@every_case
def test_it_lints(case: Path, major: int) -> None:
    """Strictly, with every set of values."""
    done = helm(major, "lint", "--strict", CHART, *with_values(case))

    assert done.returncode == 0, done.stdout + done.stderr


@every_case
def test_helm_3_and_4_make_the_same_of_it(case: Path) -> None:
    """Down to each field."""
    assert render(*with_values(case), major=3) == render(*with_values(case), major=4)


@pytest.mark.parametrize("kubernetes", [OLDEST, NEWEST])
@every_case
def test_kubernetes_takes_it(case: Path, kubernetes: str) -> None:
    """Every object fits the strict schema of the oldest and the newest version."""
    for one in render(*with_values(case), "--kube-version", kubernetes + ".0"):
        if one["kind"] not in NOT_KUBERNETES_OWN:
            kubernetes_validate.validate(one, kubernetes, strict=True)


def test_an_older_kubernetes_is_refused() -> None:
    """By the chart, and not by an object that does not fit."""
    assert "incompatible with Kubernetes" in refusal("--kube-version", "1.26.0")


def test_a_planted_fault_is_found() -> None:
    """The schemas are strict: a field that Kubernetes does not know is one."""
    deployment = copy.deepcopy(only(render(), "Deployment"))
    deployment["spec"]["template"]["spec"]["terminationGracePeriod"] = 5

    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, NEWEST, strict=True)


# ---- values


def sections(part: Json, path: str = "") -> Iterator[tuple[str, Json]]:
    """Every part of the schema that describes a mapping, with its path."""
    yield path, part
    for name, below in part.get("properties", {}).items():
        if below.get("type") == "object":
            yield from sections(below, f"{path}.{name}" if path else name)


CLOSED = [path for path, part in sections(schema()) if "properties" in part and not path.startswith("config")]


@pytest.mark.parametrize("path", CLOSED, ids=lambda path: path or "top")
def test_an_unknown_value_is_refused(path: str) -> None:
    """At every level but those that are passed on as they are."""
    name = f"{path}.nonsense" if path else "nonsense"

    assert "nonsense" in refusal("--set", f"{name}=1", major=3)
    assert "nonsense" in refusal("--set", f"{name}=1")


def leaves(part: Json, path: str = "") -> Iterator[str]:
    for name, value in part.items():
        here = f"{path}.{name}" if path else name
        if isinstance(value, dict) and value and here not in WHOLE:
            yield from leaves(value, here)
        else:
            yield here


WHOLE = {
    *("podSecurityContext", "securityContext", "resources", "lifecycle", "strategy", "startupProbe", "livenessProbe", "readinessProbe"),
    "autoscaling.behavior",
}
"""Values that are replaced as a whole, or passed on as they are."""


def test_the_readme_has_every_value() -> None:
    """Once, and no other, with its default where that is short."""
    rows = re.findall(r"^\| `([^`]+)` \| (.*?) \|", (CHART / "README.md").read_text(), re.MULTILINE)
    told = {name: yaml.safe_load(default.strip("`")) for name, default in rows if default.startswith("`")}

    assert sorted(name for name, _ in rows) == sorted(leaves(values()))
    assert told == {name: reduce(lambda part, key: part[key], name.split("."), values()) for name in told}


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("service.port=http", "service/port"),
        ("replicaCount=2", "2 replicas share sessions only through Redis: set redis.existingSecret, redis.url or redis.hosts"),
        ("autoscaling.enabled=true", "10 replicas share sessions only through Redis"),
        ("config.server.workers=2", "several workers share sessions only through Redis"),
        ("config.server.host=127.0.0.1", "host"),
        ("config.server.admin_port=4001", "admin_port serves nothing without config.server.admin_key"),
        ("config.server.admin_key=hunter2", "admin_key"),
        ("config.server.admin_port=admin", "admin_port"),
        ("redis.mode=sentinels", "redis"),
        ("redis.hosts={a,b}", "redis.hosts has 2 entries; redis.mode: standalone takes one"),
        ("redis.hosts={redis://a}", "redis"),
        ("httpRoute.enabled=true", "httpRoute.enabled needs httpRoute.parentRefs"),
        ("ingress.enabled=true", "ingress.enabled needs ingress.hosts"),
        ("image.digest=latest", "image"),
        ("metrics.serviceMonitor.interval=soon", "interval"),
    ],
)
def test_what_cannot_work_is_refused_before_it_is_installed(setting: str, said: str) -> None:
    """With what to change."""
    assert said in refusal("--set", setting)


@pytest.mark.parametrize("page", ["README.md", "helm/README.md", "docs/operations.md"])
def test_the_commands_in_the_documentation_work(page: str) -> None:
    """As far as they go without a cluster: what they would install is rendered, several replicas with Redis."""
    text = (CHART.parent / page).read_text().replace("\\\n", " ")
    commands = re.findall(r"^helm install lastcall \./helm (.*)$", text, re.MULTILINE)

    assert commands
    for command in commands:
        objects = render(*shlex.split(command))
        assert only(objects, "Deployment")["spec"]["replicas"] >= 2
        assert container(objects)["env"][0]["name"] == "REDIS_URL"


def test_it_is_the_release_it_says() -> None:
    """The image's tag is that of the package."""
    assert container(render())["image"] == f"lastcall:{version('lastcall')}"


# ---- the configuration


def config_of(objects: list[Json]) -> Config:
    """The file in its ConfigMap, read by Lastcall with the environment that its container would have."""
    environ: dict[str, str] = {}
    for one in container(objects)["env"] or []:
        text = str(one.get("value", SECRETS.get(one["name"], "x")))
        environ[one["name"]] = text.replace("$(REDIS_PASSWORD)", SECRETS["REDIS_PASSWORD"])
    return load(file_of(objects), environ)


def file_of(objects: list[Json]) -> str:
    (text,) = [one["data"]["config.yaml"] for one in objects if one["kind"] == "ConfigMap" and "config.yaml" in one["data"]]
    return str(text)


OWN_FILE = [case for case in CASES if not values(case).get("existingConfigMap")]


@pytest.mark.parametrize("case", OWN_FILE, ids=lambda case: case.stem)
def test_lastcall_takes_the_file_it_gets(case: Path) -> None:
    """With the ports that the container names, and sessions where the values say."""
    objects = render(*with_values(case))
    config = config_of(objects)
    ports = {port["name"]: port["containerPort"] for port in container(objects)["ports"]}

    server = config.server
    assert (server.port, server.metrics_port, server.admin_port) == (ports["http"], ports.get("metrics"), ports.get("admin"))
    assert config.store.url.startswith("redis")
    open_store(config.store.url, clock=time.time, random_bytes=os.urandom, timeout=1.0)


@pytest.mark.parametrize(
    ("case", "url"),
    [
        ("standalone", "rediss://lastcall:$(REDIS_PASSWORD)@redis.data.svc:6379/3"),
        ("sentinel", "redis+sentinel://:$(REDIS_PASSWORD)@sentinel-0:26379,sentinel-1:26379,sentinel-2:26380/main/0?max_connections=8"),
        ("cluster", "redis+cluster://:$(REDIS_PASSWORD)@redis-0:6379,redis-1:6379,redis-2:6379"),
    ],
)
def test_a_url_is_made_of_its_parts(case: str, url: str) -> None:
    """The password comes from its Secret, which stands before the URL that needs it."""
    password, whole = container(render(*with_values(CHART / f"ci/{case}-values.yaml")))["env"]

    assert (password["name"], "secretKeyRef" in password["valueFrom"]) == ("REDIS_PASSWORD", True)
    assert whole == {"name": "REDIS_URL", "value": url}


def test_an_existing_secret_comes_first() -> None:
    """Whatever else is said of Redis."""
    more = ("--set", "redis.existingSecret=mine,redis.existingSecretKey=url,redis.url=redis://other")

    assert container(render(*more))["env"] == [{"name": "REDIS_URL", "valueFrom": {"secretKeyRef": {"name": "mine", "key": "url"}}}]


def test_large_numbers_and_variables_pass_as_they_are() -> None:
    """No float is made of a budget, and no variable is filled in by Helm."""
    text = file_of(render(*with_values(CHART / "ci/redis-secret-values.yaml")))

    assert "tokens: 5000000\n" in text
    assert "url: ${REDIS_URL:-memory://}" in text


def test_pods_are_replaced_when_the_configuration_changes() -> None:
    """And only then."""

    def checksum(setting: str) -> str:
        template: Json = only(render("--set", setting), "Deployment")["spec"]["template"]
        return str(template["metadata"]["annotations"]["checksum/config"])

    before = checksum("revisionHistoryLimit=5")

    assert checksum("config.policy.mode=observe") != before
    assert checksum("service.port=8000") == before
