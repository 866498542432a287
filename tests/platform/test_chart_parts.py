"""The objects of the chart agree with each other: ports, selectors, monitors, time to drain; and every container is held tight."""

import re
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from proxy.app import _DRAIN_SECONDS
from tests.platform.charts import CASES, CHART, MAJORS, helm, only, render, with_values
from tests.platform.dashboards import DASHBOARDS, RULES

Json = dict[str, Any]

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
COMPONENT = "app.kubernetes.io/component"
ALL_ON = CHART / "ci/everything-values.yaml"
MONITORED = CHART / "ci/redis-secret-values.yaml"


def kinds(objects: list[Json]) -> set[str]:
    return {one["kind"] for one in objects}


def api_of(objects: list[Json]) -> Json:
    """The Service of the API."""
    (found,) = [one for one in objects if one["kind"] == "Service" and one["metadata"]["labels"].get(COMPONENT) != "admin"]
    return found


def selects(selector: Json, labels: Json) -> bool:
    return bool(selector) and selector.items() <= labels.items()


@every_case
def test_everything_selects_the_pods(case: Path) -> None:
    """Service, budget, network policy and spread name labels that the pods have, and not the test's."""
    objects = render(*with_values(case))
    deployment = only(objects, "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    selectors = [deployment["spec"]["selector"]["matchLabels"]]
    selectors += [one["spec"]["selector"] for one in objects if one["kind"] == "Service"]
    selectors += [one["spec"]["selector"]["matchLabels"] for one in objects if one["kind"] == "PodDisruptionBudget"]
    selectors += [one["spec"]["podSelector"]["matchLabels"] for one in objects if one["kind"] == "NetworkPolicy"]
    spread = deployment["spec"]["template"]["spec"].get("topologySpreadConstraints", [])
    selectors += [one["labelSelector"]["matchLabels"] for one in spread]

    assert all(selects(selector, labels) for selector in selectors)
    assert not any(selects(selector, only(objects, "Pod")["metadata"]["labels"]) for selector in selectors)


@every_case
def test_every_port_leads_somewhere(case: Path) -> None:
    """From Ingress, route, monitor and policy to the Service, from there and from probes to the container."""
    objects = render(*with_values(case))
    service = api_of(objects)
    pod = only(objects, "Deployment")["spec"]["template"]["spec"]
    (container,) = [one for one in pod["containers"] if one["name"] == "lastcall"]
    offered = {port["name"]: port["port"] for port in service["spec"]["ports"]}
    led_to = [port["targetPort"] for one in objects if one["kind"] == "Service" for port in one["spec"]["ports"]]
    listened = {port["name"] for port in container["ports"]}
    probes = [container[name] for name in ("startupProbe", "livenessProbe", "readinessProbe") if name in container]

    assert sorted(led_to) == sorted(listened)
    assert {probe["httpGet"]["port"] for probe in probes} <= listened
    for one in objects:
        match one["kind"]:
            case "Ingress":
                backends = [path["backend"]["service"] for rule in one["spec"]["rules"] for path in rule["http"]["paths"]]
                assert {(end["name"], end["port"]["name"]) for end in backends} == {(service["metadata"]["name"], "http")}
            case "HTTPRoute":
                (end,) = one["spec"]["rules"][0]["backendRefs"]
                assert (end["name"], end["port"]) == (service["metadata"]["name"], offered["http"])
            case "ServiceMonitor":
                assert selects(one["spec"]["selector"]["matchLabels"], service["metadata"]["labels"])
                assert [endpoint["port"] for endpoint in one["spec"]["endpoints"]] == ["metrics"]
                assert "metrics" in offered
            case "NetworkPolicy":
                assert {port["port"] for rule in one["spec"]["ingress"] for port in rule["ports"]} == listened
            case "HorizontalPodAutoscaler":
                assert one["spec"]["scaleTargetRef"]["name"] == only(objects, "Deployment")["metadata"]["name"]
                assert "replicas" not in only(objects, "Deployment")["spec"]


def test_the_operators_port_has_a_service_of_its_own_that_nothing_exposes() -> None:
    """Whatever the API's is: Ingress, route and load balancer lead to the API alone. A policy lets in those that are named, or nobody."""
    objects = render(*with_values(ALL_ON))
    (admin,) = [one for one in objects if one["kind"] == "Service" and one is not api_of(objects)]
    policy = only(objects, "NetworkPolicy")["spec"]["ingress"]
    closed = only(render(*with_values(ALL_ON), "--set", "networkPolicy.adminFrom=null"), "NetworkPolicy")["spec"]["ingress"]
    monitored = only(objects, "ServiceMonitor")["spec"]["endpoints"]

    assert (admin["metadata"]["name"], admin["spec"]["type"]) == ("demo-breaker-admin", "ClusterIP")
    assert admin["spec"]["ports"] == [{"name": "admin", "port": 8082, "targetPort": "admin"}]
    assert (api_of(objects)["spec"]["type"], [port["name"] for port in api_of(objects)["spec"]["ports"]]) == (
        "LoadBalancer",
        ["http", "metrics"],
    )
    assert {"ports": [{"port": "admin"}], "from": [{"podSelector": {"matchLabels": {"role": "operator"}}}]} in policy
    assert {port["port"] for rule in closed for port in rule["ports"]} == {"http", "metrics"}
    assert [endpoint["port"] for endpoint in monitored] == ["metrics"]
    assert sum(one["kind"] == "Service" for one in render()) == 1


@every_case
def test_the_test_asks_what_is_served(case: Path) -> None:
    """`helm test` goes to the Service's ports."""
    objects = render(*with_values(case))
    service = api_of(objects)
    offered = {port["port"] for port in service["spec"]["ports"]}
    asked = [one for one in only(objects, "Pod")["spec"]["containers"][0]["command"] if one.startswith("http")]
    parts = [re.fullmatch(r"http://([\w-]+):(\d+)/(\w+)", url) for url in asked]

    assert {part[1] for part in parts if part} == {service["metadata"]["name"]}
    assert {int(part[2]) for part in parts if part} == offered
    assert [part[3] for part in parts if part] == ["livez", "readyz", "metrics"]


@every_case
def test_our_containers_are_held_tight(case: Path) -> None:
    """No root, no rights, nothing to write to but memory, no token of the cluster."""
    objects = render(*with_values(case))
    for spec in (only(objects, "Deployment")["spec"]["template"]["spec"], only(objects, "Pod")["spec"]):
        own = spec["containers"][0]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is False
        assert own["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert "hostNetwork" not in spec and "hostPID" not in spec


@every_case
def test_streams_have_the_time_they_are_promised(case: Path) -> None:
    """The pod is not killed before the server has drained, what the hook waits included."""
    spec = only(render(*with_values(case)), "Deployment")["spec"]["template"]["spec"]
    hook = spec["containers"][0].get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ["sleep", "0"])

    assert spec["terminationGracePeriodSeconds"] >= _DRAIN_SECONDS + int(hook[1])


def test_a_user_s_own_file_needs_no_checksum_that_could_not_be_had() -> None:
    """And is mounted in the place of the chart's."""
    objects = render(*with_values(CHART / "ci/nothing-values.yaml"))
    template = only(objects, "Deployment")["spec"]["template"]

    assert "ConfigMap" not in kinds(objects)
    assert "checksum/config" not in template["metadata"]["annotations"]
    assert template["spec"]["volumes"][0]["configMap"] == {"name": "my-lastcall"}


def test_everything_off_leaves_what_must_be() -> None:
    """And everything on makes all there is."""
    must = {"Deployment", "Service", "Pod"}
    by_choice = {"NetworkPolicy", "Ingress", "HTTPRoute", "HorizontalPodAutoscaler", "ServiceMonitor", "PrometheusRule"}

    assert kinds(render(*with_values(CHART / "ci/nothing-values.yaml"))) == must
    assert kinds(render()) == must | {"ConfigMap", "ServiceAccount", "PodDisruptionBudget"}
    assert kinds(render(*with_values(ALL_ON))) == must | by_choice | {"ConfigMap", "ServiceAccount", "PodDisruptionBudget"}


def test_no_secret_is_made() -> None:
    """Secrets are the user's: the chart only names them."""
    assert all("Secret" not in kinds(render(*with_values(case))) for case in CASES)


def test_metrics_without_a_port_of_their_own_are_scraped_beside_the_api() -> None:
    """The monitor follows the configuration."""
    monitor = only(render("--set", "config.server.metrics_port=null,metrics.serviceMonitor.enabled=true"), "ServiceMonitor")

    assert monitor["spec"]["endpoints"][0]["port"] == "http"


def test_a_policy_lets_redis_through_where_it_is() -> None:
    """The ports of the hosts, and the master's behind sentinels; none without Redis."""

    def out(*arguments: str) -> set[int]:
        policy = only(render("--set", "networkPolicy.enabled=true", *arguments), "NetworkPolicy")
        return {port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]} - {53}

    assert out() == {443}
    assert out("--set", "redis.existingSecret=mine") == {443, 6379}
    assert out("--set", "redis.hosts={redis:6380}") == {443, 6380}
    assert out(*with_values(CHART / "ci/sentinel-values.yaml")) == {443, 26379, 26380, 6379}


# ---- monitoring


def test_rules_are_those_of_the_rules_file() -> None:
    """Those tested by promtool, but for the ones switched off, with links to the runbook."""
    objects = render(*with_values(MONITORED))
    shipped = yaml.safe_load(RULES.read_text())["groups"]
    expected = [[rule for rule in group["rules"] if rule.get("alert") != "LastcallAbsent"] for group in shipped]
    for rules in expected:
        for rule in rules:
            if "alert" in rule:
                rule["annotations"]["runbook_url"] = f"https://example.com/runbook#{rule['alert'].lower()}"

    rule = only(objects, "PrometheusRule")
    assert rule["metadata"]["labels"]["release"] == "monitoring"
    assert [group["rules"] for group in rule["spec"]["groups"]] == expected
    assert only(render(*with_values(ALL_ON)), "PrometheusRule")["spec"]["groups"][-1]["name"] == "mine"


def test_dashboards_are_those_of_grafana() -> None:
    """To the byte, with the label that the sidecar looks for, braces of legends included."""
    objects = [one for one in render(*with_values(ALL_ON)) if "grafana_dashboard" in one["metadata"].get("labels", {})]
    shipped = {path.name: path.read_text().strip() for path in DASHBOARDS}

    assert {name: text for one in objects for name, text in one["data"].items()} == shipped
    assert {one["metadata"]["namespace"] for one in objects} == {"monitoring"}
    assert all(len(one["metadata"]["name"]) <= 63 for one in objects)


@pytest.mark.parametrize("major", MAJORS)
def test_a_package_holds_dashboards_and_rules(tmp_path: Path, major: int) -> None:
    """As files: the chart's folders are links into grafana/."""
    done = helm(major, "package", CHART, "--destination", tmp_path)
    assert done.returncode == 0, done.stderr
    (package,) = tmp_path.glob("*.tgz")
    with tarfile.open(package) as archive:
        files = {member.name for member in archive.getmembers() if member.isfile()}

    assert {f"lastcall/dashboards/{path.name}" for path in DASHBOARDS} | {f"lastcall/rules/{RULES.name}"} <= files
    assert not any("/ci/" in name for name in files)
