"""What operators see: exact series and log lines for given events, whatever clients write into them."""

import json
import math
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from proxy import __version__, events
from proxy.dialects import DIALECTS
from proxy.events import BudgetSeen, ConfigReloaded, Event, FindingSeen, NudgeEnded, ReloadOutcome, StoreChanged, StoreFailed, UnjudgedEnded
from proxy.models import Action, Reason
from proxy.policy import Mode
from proxy.telemetry import OTHER, registry_for
from tests.counted import MODELS, TOOLS, Seen, after, exchange, samples_of, spelled

SECONDS = {"overhead_seconds": 0.25, "upstream_seconds": 3.0, "first_byte_seconds": 0.5}
REQUESTS = "requests_total{action=allow,dialect=chat,outcome=completed}"
AT_EVERY_LEVEL = [Seen(log_level=level) for level in ("debug", "info", "warning", "error")]


def test_an_allowed_exchange_moves_exactly_its_own_series() -> None:
    """One healthy answer: a request, its tokens, one upstream call and three durations; nothing else."""
    seen = after(exchange(streamed=True, upstream_calls=1, input_tokens=12000, output_tokens=30, **SECONDS))
    assert seen.moved() == {
        REQUESTS: 1,
        "tokens_total{direction=input,estimated=false,model=gpt-5}": 12000,
        "tokens_total{direction=output,estimated=false,model=gpt-5}": 30,
        "upstream_calls_total{}": 1,
        "overhead_seconds_count{dialect=chat,streamed=true}": 1,
        "overhead_seconds_sum{dialect=chat,streamed=true}": 0.25,
        "upstream_seconds_count{dialect=chat,streamed=true}": 1,
        "upstream_seconds_sum{dialect=chat,streamed=true}": 3.0,
        "first_byte_seconds_count{dialect=chat,streamed=true}": 1,
        "first_byte_seconds_sum{dialect=chat,streamed=true}": 0.5,
    }


def test_a_stopped_exchange_moves_exactly_its_own_series() -> None:
    """A stop after a nudge, with pruned calls, a failed retry and estimated usage, while the store is away."""
    seen = after(
        exchange(
            action=Action.STOP,
            reason=Reason.PARALLEL_REPEAT,
            findings=(FindingSeen(Reason.PARALLEL_REPEAT, Action.STOP), FindingSeen(Reason.CYCLE, Action.NUDGE)),
            nudge_ended=NudgeEnded("stopped"),
            pruned=3,
            degraded=True,
            upstream_calls=2,
            upstream_errors=(events.UpstreamError.TIMEOUT,),
            output_tokens=7,
            usage_estimated=True,
        )
    )
    assert seen.moved() == {
        "requests_total{action=stop,dialect=chat,outcome=completed}": 1,
        "stops_total{mode=enforce,reason=parallel_repeat}": 1,
        "findings_total{action=stop,detector=parallel_repeat,mode=enforce}": 1,
        "findings_total{action=nudge,detector=cycle,mode=enforce}": 1,
        "nudge_outcomes_total{nudged=true,outcome=stopped}": 1,
        "pruned_calls_total{mode=enforce,reason=parallel_repeat}": 3,
        "degraded_total{}": 1,
        "upstream_calls_total{}": 2,
        "upstream_errors_total{kind=timeout}": 1,
        "tokens_total{direction=output,estimated=true,model=gpt-5}": 7,
        "overhead_seconds_count{dialect=chat,streamed=false}": 1,
        "upstream_seconds_count{dialect=chat,streamed=false}": 1,
    }


def test_a_refusal_asks_no_upstream_and_counts_none() -> None:
    """A refused request has an overhead but no upstream time and no first byte."""
    seen = after(exchange(action=Action.REFUSE, reason=Reason.STEP_BUDGET, outcome=events.Outcome.REFUSED, status=400, avoided_tokens=700))
    assert seen.moved() == {
        "requests_total{action=refuse,dialect=chat,outcome=refused}": 1,
        "refusals_total{mode=enforce,reason=step_budget}": 1,
        "avoided_calls_total{reason=step_budget}": 1,
        "avoided_tokens_total{reason=step_budget}": 700,
        "overhead_seconds_count{dialect=chat,streamed=false}": 1,
    }


def test_observe_mode_counts_the_decision_but_an_allowed_request() -> None:
    """What would have been done stands under its mode; the request was allowed."""
    seen = after(exchange(action=Action.NUDGE, reason=Reason.CYCLE, mode=Mode.OBSERVE))
    moved = seen.moved()
    assert moved[REQUESTS] == 1
    assert moved["nudges_total{mode=observe,reason=cycle}"] == 1
    assert seen.logged()[0]["action"] == "nudge"


def test_nothing_that_was_only_observed_is_told_as_done() -> None:
    """Whatever tells of decisions tells their mode: no series of enforced ones moves, and no log line is without it."""
    told: dict[str, Any] = {
        "findings": tuple(FindingSeen(Reason.PARALLEL_REPEAT, action) for action in (Action.NUDGE, Action.STOP)),
        "nudge_ended": NudgeEnded("stopped", nudged=False),
        "warned": Reason.STEP_BUDGET,
        "reason": Reason.PARALLEL_REPEAT,
        "tool": "bash",
        "mode": Mode.OBSERVE,
    }
    seen = after(
        *(exchange(action=action, pruned=2, **told) for action in Action),
        UnjudgedEnded(200, 0.5, refused=Reason.DEADLINE, mode=Mode.OBSERVE),
        log_level="debug",
    )
    decided = {name: value for name, value in seen.moved().items() if "reason=" in name or "detector=" in name or "tool=" in name}

    assert {name.partition("{")[0] for name in decided} == {
        *("findings_total", "tools_total", "nudges_total", "stops_total", "refusals_total", "pruned_calls_total", "budget_notices_total")
    }
    assert all("mode=observe" in name for name in decided)
    assert {line["mode"] for line in seen.logged()} == {"observe"}


def test_store_events_move_the_gauge_and_their_counters() -> None:
    """Away: gauge 0, one outage; back: gauge 1; each failed call by its operation."""
    seen = after(StoreFailed(events.StoreOperation.OPEN, "TimeoutError"), StoreChanged(False, "TimeoutError"), log_level="debug")
    assert seen.moved() == {"store_errors_total{operation=open}": 1, "store_outages_total{}": 1, "store_up{}": 0}
    seen.telemetry.emit(StoreChanged(True))
    assert seen.moved() == {"store_errors_total{operation=open}": 1, "store_outages_total{}": 1}
    head = {"ts": "2023-11-14T22:13:20.062Z"}
    assert seen.logged() == [
        head | {"event": "store_failed", "level": "debug", "operation": "open", "cause": "TimeoutError"},
        head | {"event": "store_changed", "level": "warning", "up": False, "cause": "TimeoutError"},
        head | {"event": "store_changed", "level": "info", "up": True},
    ]


def test_a_store_is_up_when_all_its_servers_are() -> None:
    """Each server of a cluster that goes away is an outage of its own, told by its address."""
    seen = after(StoreChanged(False, "TimeoutError", "10.0.0.1:6379"), StoreChanged(False, "TimeoutError", "10.0.0.2:6379"))
    assert seen.moved() == {"store_outages_total{}": 2, "store_up{}": 0}
    seen.telemetry.emit(StoreChanged(True, node="10.0.0.1:6379"))
    assert seen.moved()["store_up{}"] == 0
    seen.telemetry.emit(StoreChanged(True, node="10.0.0.2:6379"))
    assert "store_up{}" not in seen.moved()
    assert [(line["up"], line["node"][:8]) for line in seen.logged()] == [(up, f"10.0.0.{i}") for up in (False, True) for i in (1, 2)]


def test_unjudged_requests_count_by_status_class() -> None:
    """Forwarded routes have one series for each class of status, and a line at debug level."""
    seen = after(UnjudgedEnded(204, 0.5), UnjudgedEnded(404, 0.5), log_level="debug")
    assert seen.moved() == {"unjudged_requests_total{status=2xx}": 1, "unjudged_requests_total{status=4xx}": 1}
    assert seen.lines[0] == b'{"event":"unjudged_ended","ts":"2023-11-14T22:13:20.062Z","level":"debug","status":204,"ms":500.0}\n'


def test_what_an_unjudged_call_spent_and_why_it_was_refused_is_counted() -> None:
    """In the series of judged ones; in observe mode under that mode."""
    spent = UnjudgedEnded(200, 0.5, "red", "gpt-5", None, "enforce", 8, 3, 2, 2_000_000_000, usage_estimated=True)
    refused = UnjudgedEnded(400, 0.5, "red", refused=Reason.TOKEN_BUDGET)
    seen = after(spent, refused, UnjudgedEnded(200, 0.5, refused=Reason.DEADLINE, mode="observe"), teams=("red",), log_level="debug")

    assert seen.moved() == {
        "unjudged_requests_total{status=2xx,team=red}": 1,
        "unjudged_requests_total{status=4xx,team=red}": 1,
        "unjudged_requests_total{status=2xx}": 1,
        "tokens_total{direction=input,estimated=true,model=gpt-5,team=red}": 8,
        "tokens_total{direction=output,estimated=true,model=gpt-5,team=red}": 3,
        "cached_tokens_total{model=gpt-5,team=red}": 2,
        "cost_dollars_total{model=gpt-5,team=red}": 2,
        "refusals_total{mode=enforce,reason=token_budget,team=red}": 1,
        "refusals_total{mode=observe,reason=deadline}": 1,
    }
    first, second, _ = seen.logged()
    assert (first["input_tokens"], first["cost_usd"], first["usage_estimated"], second["reason"]) == (8, 2.0, True, "token_budget")


def test_a_reload_is_counted_and_a_rejected_one_says_why() -> None:
    """As a warning, with every fault, and without the lines running into others."""
    faults = "policy.mode: 'of' is not known here (line 3)\nserver.port: changes only with a new start"
    seen = after(ConfigReloaded(ReloadOutcome.APPLIED), ConfigReloaded(ReloadOutcome.REJECTED, faults))

    assert seen.moved() == {"config_reloads_total{outcome=applied}": 1, "config_reloads_total{outcome=rejected}": 1}
    assert [(line["event"], line["level"], line.get("cause")) for line in seen.logged()] == [
        ("config_reloaded", "info", None),
        ("config_reloaded", "warning", faults),
    ]
    assert all(line.count(b"\n") == 1 for line in seen.lines)


def test_what_an_operator_did_is_counted_and_told() -> None:
    """With who did it to which session; a name that could steer a terminal is made harmless."""
    raised = events.OperatorActed(events.OperatorAction.RAISE, "0123abcd", "", team="red", change={"steps": 9, "per": "day"})
    (of_team,) = after(raised).logged()
    seen = after(events.OperatorActed(events.OperatorAction.PAUSE, "0123abcd", "ff" * 16, "run\x1b", "red"))

    assert seen.moved() == {"operator_actions_total{action=pause}": 1}
    (line,) = seen.logged()
    assert (line["event"], line["level"], line["action"], line["who"]) == ("operator_acted", "warning", "pause", "0123abcd")
    assert (line["session"], line["name"], line["team"]) == ("ff" * 16, "run\ufffd", "red")
    assert "change" not in line
    assert (of_team["team"], of_team["change"], "session" in of_team) == ("red", {"steps": 9, "per": "day"}, False)


def test_budgets_of_teams_are_gauged_as_they_were_last_seen() -> None:
    """One that is told no more is unknown, and none of the numbers of before."""
    day, month = BudgetSeen("red", "tokens", "day", 900, 300, 5e9), BudgetSeen("red", "cost_usd", "month", 1.5, 0.25, 6e9)
    both = after(events.BudgetsSeen((day, month)))
    gone = after(events.BudgetsSeen((day, month)), events.BudgetsSeen((day,)))

    assert both.moved() == {
        "team_budget_limit{per=day,team=red,unit=tokens}": 900,
        "team_budget_spent{per=day,team=red,unit=tokens}": 300,
        "team_budget_resets_timestamp_seconds{per=day,team=red,unit=tokens}": 5e9,
        "team_budget_limit{per=month,team=red,unit=cost_usd}": 1.5,
        "team_budget_spent{per=month,team=red,unit=cost_usd}": 0.25,
        "team_budget_resets_timestamp_seconds{per=month,team=red,unit=cost_usd}": 6e9,
    }
    assert {name: value for name, value in gone.moved().items() if "day" in name} == {
        name: value for name, value in both.moved().items() if "day" in name
    }
    assert all(math.isnan(value) for name, value in gone.moved().items() if "month" in name)
    assert both.lines == []


def test_a_worker_that_hangs_is_counted_and_logged_at_once() -> None:
    """There is nobody left to settle it later."""
    seen = Seen()
    seen.telemetry.worker_hung(60)
    assert seen.moved() == {"workers_hung_total{}": 1}
    assert [(line["event"], line["level"], line["seconds"]) for line in seen.logged()] == [("worker_hung", "error", 60)]


def test_in_flight_follows_start_and_finish() -> None:
    """The gauge holds what has started and not finished."""
    seen = Seen()
    seen.telemetry.exchange_started()
    seen.telemetry.exchange_started()
    seen.telemetry.exchange_finished()
    assert seen.moved() == {"in_flight{}": 1}


def test_every_closed_label_set_is_there_before_the_first_event() -> None:
    """rate() needs the zero: all combinations exist at start."""
    there = {spelled(series) for series in Seen().at_start}
    for reason, mode in product(Reason, Mode):
        assert f"nudges_total{{mode={mode},reason={reason}}}" in there
        assert f"stops_total{{mode={mode},reason={reason}}}" in there
        assert f"refusals_total{{mode={mode},reason={reason}}}" in there
        assert f"findings_total{{action=stop,detector={reason},mode={mode}}}" in there
        assert f"findings_total{{action=nudge,detector={reason},mode={mode}}}" in there
        assert f"pruned_calls_total{{mode={mode},reason={reason}}}" in there
    for dialect, action, outcome in product((d.name for d in DIALECTS.values()), Action, events.Outcome):
        assert f"requests_total{{action={action},dialect={dialect},outcome={outcome}}}" in there
    for direction, model, estimated in product(("input", "output"), (*MODELS, OTHER), ("true", "false")):
        assert f"tokens_total{{direction={direction},estimated={estimated},model={model}}}" in there
    assert {f"nudge_outcomes_total{{nudged=false,outcome={outcome}}}" for outcome in events.NudgeOutcome} <= there
    assert {f"upstream_errors_total{{kind={kind}}}" for kind in events.UpstreamError} <= there
    assert {f"store_errors_total{{operation={operation}}}" for operation in events.StoreOperation} <= there
    assert f"build_info{{version={__version__}}}" in there


def test_a_thousand_clients_add_no_series() -> None:
    """New models, sessions and tools change values, never the set of series."""
    seen = Seen()
    for number in range(1000):
        model = ("gpt-{}", "claude-{}", "mistral-{}")[number % 3].format(number)
        seen.telemetry.emit(exchange(model=model, session=f"session-{number}", tool=f"tool-{number}", input_tokens=1, output_tokens=1))
    assert seen.samples().keys() == seen.at_start.keys()


@pytest.mark.parametrize(
    ("model", "label"),
    [("gpt-5", "gpt-5"), ("gpt-5-mini", "gpt-*"), ("claude-*", "claude-*"), ("GPT-5", OTHER), ("", OTHER), ("x" * 10_000, OTHER)],
)
def test_a_model_is_counted_under_the_configured_entry_that_stands_for_it(model: str, label: str) -> None:
    """Its own name first, then the glob itself (never the text that matched it), else `_other`."""
    seen = after(exchange(model=model, input_tokens=5))
    assert seen.moved()[f"tokens_total{{direction=input,estimated=false,model={label}}}"] == 5


def test_a_team_is_counted_under_its_name() -> None:
    """What it asked, what was done about it, what it spent; what no team asked under none."""
    stop: dict[str, Any] = {"action": Action.STOP, "reason": Reason.CYCLE, "input_tokens": 5, "output_tokens": 3, "cached_tokens": 2}
    stop["findings"] = (FindingSeen(Reason.CYCLE, Action.STOP),)
    seen = after(exchange(team="red", **stop), exchange(), UnjudgedEnded(200, 1.0, "blue"), teams=("red", "blue"))

    assert {series for series in seen.moved() if "team=" in series or series.startswith("requests")} == {
        "requests_total{action=stop,dialect=chat,outcome=completed,team=red}",
        "requests_total{action=allow,dialect=chat,outcome=completed}",
        "stops_total{mode=enforce,reason=cycle,team=red}",
        "avoided_calls_total{reason=cycle,team=red}",
        "findings_total{action=stop,detector=cycle,mode=enforce,team=red}",
        "cached_tokens_total{model=gpt-5,team=red}",
        "tokens_total{direction=input,estimated=false,model=gpt-5,team=red}",
        "tokens_total{direction=output,estimated=false,model=gpt-5,team=red}",
        "unjudged_requests_total{status=2xx,team=blue}",
    }
    assert [line.get("team") for line in seen.logged()] == ["red", None]


def test_labels_of_a_new_configuration_are_there_at_once_and_old_ones_stay() -> None:
    """A counter that vanished would look like a restart."""
    seen = Seen(teams=("red",))
    seen.telemetry.emit(exchange(team="red", model="claude-5"))
    seen.telemetry.name_labels(("o3",), ("blue",))
    seen.telemetry.emit(exchange(team="blue", model="o3", input_tokens=1))

    samples = {spelled(series): value for series, value in seen.samples().items()}
    assert samples["requests_total{action=allow,dialect=chat,outcome=completed,team=red}"] == 1
    assert samples["requests_total{action=allow,dialect=chat,outcome=completed,team=blue}"] == 1
    assert samples["tokens_total{direction=input,estimated=false,model=o3,team=blue}"] == 1
    assert samples["stops_total{mode=enforce,reason=cycle,team=blue}"] == 0


def test_no_label_value_is_outside_the_closed_sets() -> None:
    """Values nobody declared end up as `_other`, once a metric, and never raise."""
    seen = Seen()
    for text in ("a", "b"):
        unknown = {"team": text, "dialect": text, "model": text, "outcome": text, "mode": text, "nudge_ended": NudgeEnded(text)}
        seen.telemetry.emit(exchange(**unknown, action=Action.STOP, pruned=1, input_tokens=1, upstream_calls=1))
        seen.telemetry.emit(UnjudgedEnded(999, 1.0))
    closed = {OTHER, "input", "output", "true", "false", "1xx", "2xx", "3xx", "4xx", "5xx", __version__, *MODELS, *TOOLS}
    closed |= {dialect.name for dialect in DIALECTS.values()}
    for members in (
        Action,
        Reason,
        Mode,
        events.Outcome,
        events.NudgeOutcome,
        events.UpstreamError,
        events.StoreOperation,
        events.ReloadOutcome,
        events.OperatorAction,
    ):
        closed |= {str(member) for member in members}
    assert {value for _, labels in seen.samples() for key, value in labels if key not in ("le", "team")} == closed
    assert {value for _, labels in seen.samples() for key, value in labels if key == "team"} == {"", OTHER}
    assert seen.moved()[f"requests_total{{action={OTHER},dialect={OTHER},outcome={OTHER},team={OTHER}}}"] == 2
    assert seen.moved()[f"pruned_calls_total{{mode={OTHER},reason={OTHER}}}"] == 2


@pytest.mark.parametrize(("tool", "label"), [("bash", "bash"), ("read_file", "read_*"), ("frobnicate", OTHER)])
def test_a_tool_is_counted_under_the_configured_entry_that_stands_for_it(tool: str, label: str) -> None:
    """Where a detector acted, or would have; a budget has no tool."""
    seen = after(
        exchange(action=Action.NUDGE, reason=Reason.CYCLE, tool=tool),
        exchange(action=Action.STOP, reason=Reason.CYCLE, tool=tool, mode=Mode.OBSERVE),
        exchange(action=Action.REFUSE, reason=Reason.OPERATOR, tool=tool),
    )
    assert {series: value for series, value in seen.moved().items() if series.startswith("tools_total")} == {
        f"tools_total{{action=nudge,mode=enforce,tool={label}}}": 1,
        f"tools_total{{action=stop,mode=observe,tool={label}}}": 1,
    }


def test_only_what_was_kept_from_the_upstream_is_avoided() -> None:
    """A stop that asked for a conclusion, and one that was only observed, cost what they cost."""
    stop: dict[str, Any] = {"action": Action.STOP, "reason": Reason.CYCLE, "avoided_tokens": 7}
    seen = after(exchange(**stop, upstream_calls=1), exchange(**stop, mode=Mode.OBSERVE), exchange(avoided_tokens=7), exchange(**stop))
    avoided = {series: value for series, value in seen.moved().items() if series.startswith("avoided")}
    assert avoided == {"avoided_calls_total{reason=cycle}": 1, "avoided_tokens_total{reason=cycle}": 7}


def test_usage_below_zero_is_not_counted() -> None:
    """A counter cannot fall: what a provider should never report changes nothing."""
    seen = after(exchange(input_tokens=-5, output_tokens=-1))
    assert not [series for series in seen.moved() if series.startswith("tokens_total")]


def test_an_exchange_is_one_line_with_exactly_these_fields() -> None:
    """Fields that do not apply are absent."""
    seen = after(exchange())
    assert seen.lines == [
        b'{"event":"exchange_ended","ts":"2023-11-14T22:13:20.062Z","level":"info","session":"s","lane":0,"step":1,"action":"allow",'
        b'"mode":"enforce","status":200,"outcome":"completed","dialect":"chat","model":"gpt-5","streamed":false,"overhead_ms":0.0,'
        b'"upstream_calls":0,"input_tokens":0,"output_tokens":0,"usage_estimated":false,"degraded":false,"retry":false}\n'
    ]


def test_a_stop_says_what_was_repeated_how_often_and_where_the_limit_was() -> None:
    """Reason, tool, count and limit, failures and durations stand in the line."""
    loop = {"reason": Reason.REPEATED_CALL, "tool": "read_file", "count": 5, "limit": 5, "pruned": 2, "nudge_ended": NudgeEnded("stopped")}
    failures = {"upstream_calls": 2, "upstream_errors": (events.UpstreamError.CUT,)}
    seen = after(exchange(model="some/unlisted-model", action=Action.STOP, **loop, **failures, **SECONDS))
    expected = (
        b'"level":"warning","session":"s","lane":0,"step":1,"action":"stop","reason":"repeated_call","mode":"enforce","tool":"read_file",'
        b'"count":5,"limit":5,"pruned":2,"nudge_outcome":"stopped","status":200,"outcome":"completed","dialect":"chat",'
        b'"model":"some/unlisted-model","streamed":false,"overhead_ms":250.0,"upstream_ms":3000.0,"first_byte_ms":500.0,'
        b'"upstream_calls":2,"upstream_errors":["cut"],'
    )
    assert expected in seen.lines[0]


@pytest.mark.parametrize(
    ("event", "level"),
    [
        (exchange(), "info"),
        (exchange(action=Action.NUDGE, reason=Reason.CYCLE), "info"),
        (exchange(outcome=events.Outcome.DISCONNECTED, status=499), "info"),
        (exchange(action=Action.STOP, reason=Reason.CYCLE), "warning"),
        (exchange(action=Action.REFUSE, reason=Reason.OPERATOR), "warning"),
        (exchange(outcome=events.Outcome.UPSTREAM_ERROR, status=502), "warning"),
        (exchange(upstream_errors=(events.UpstreamError.CUT,)), "warning"),
        (exchange(outcome=events.Outcome.FAILED, status=500), "error"),
        (StoreFailed(events.StoreOperation.PING), "debug"),
        (UnjudgedEnded(200, 0.1), "debug"),
        (StoreChanged(True), "info"),
        (StoreChanged(False), "warning"),
    ],
)
def test_a_line_is_written_from_its_level_on(event: Event, level: str) -> None:
    """log_level is the least that is logged."""
    for seen in AT_EVERY_LEVEL:
        seen.lines.clear()
        seen.telemetry.emit(event)
    levels = [line["level"] for seen in AT_EVERY_LEVEL for line in seen.logged()]
    assert levels == [level] * (1 + ["debug", "info", "warning", "error"].index(level))


ANY_TEXT = st.text(st.characters(), max_size=300)  # surrogates included, unlike the default


@given(session=ANY_TEXT, tool=st.none() | ANY_TEXT, model=ANY_TEXT)
def test_whatever_a_client_writes_stays_one_json_line(session: str, tool: str | None, model: str) -> None:
    """Any text, lone surrogates and line separators included: one line, valid JSON, 200 characters a field at most."""
    seen = AT_EVERY_LEVEL[0]
    seen.lines.clear()
    seen.telemetry.emit(exchange(session=session, tool=tool, model=model))
    [line] = seen.lines
    text = line.decode()
    assert text.splitlines(keepends=True) == [text]
    assert text.endswith("\n")
    assert text[:-1].isprintable()
    fields = json.loads(text)
    assert len(fields["session"]) == min(len(session), 200)
    assert len(fields["model"]) == min(len(model), 200)
    assert ("tool" in fields) == (tool is not None)
    if session.isprintable():
        assert fields["session"] == session[:200]


def test_a_log_that_cannot_be_written_costs_a_line_not_the_exchange() -> None:
    """A full disk or closed pipe is counted."""

    def full(_: bytes) -> None:
        raise OSError(28, "No space left on device")

    seen = after(exchange(), log=full)
    assert seen.moved()["log_lines_dropped_total{}"] == 1
    assert seen.moved()[REQUESTS] == 1


@pytest.mark.parametrize("accept", [None, "", "*/*", "text/plain; version=nonsense", "text/plain;version=0.0.4"])
def test_the_exposition_is_prometheus_text(accept: str | None) -> None:
    """Whatever the scraper accepts, short of OpenMetrics, it gets the text format and its content type."""
    body, content_type = Seen().telemetry.exposition(accept)
    assert content_type.startswith("text/plain; version=")
    assert samples_of(body.decode())


def test_openmetrics_is_served_to_those_who_ask() -> None:
    """The stricter format parses as well."""
    body, content_type = Seen().telemetry.exposition("application/openmetrics-text;version=1.0.0")
    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    assert list(parse_openmetrics(body.decode()))  # type: ignore[no-untyped-call]


def test_one_process_reports_its_own_memory_and_processor_time() -> None:
    """Without a shared directory, the usual process_* metrics are there."""
    names = {family.name for family in registry_for(None).collect()}
    assert {"process_cpu_seconds", "process_resident_memory_bytes"} <= names
