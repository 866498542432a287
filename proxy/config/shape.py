"""Every key of `config.yaml`: its section, type, default and meaning.

A key that this version does not act on has no place here, since a limit that nobody enforces is worse than none.
"""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from proxy.config.values import (
    ApiKey,
    BaseUrl,
    Deadline,
    Few,
    FirstRung,
    Header,
    KeyDigest,
    Limit,
    Money,
    Name,
    OwnPort,
    Port,
    ProxyUrl,
    Rung,
    Share,
    Size,
    StoreUrl,
    Template,
    Timeout,
    Tries,
    Workers,
    fault,
    shown,
    whole_limit,
)


class Section(BaseModel):
    """A mapping of keys. Written without any (`server:` alone), it is as if absent."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", hide_input_in_errors=True, use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _empty(cls, value: object) -> object:
        return {} if value is None else value


class ServerConfig(Section):
    """Where Lastcall listens."""

    host: Name = "127.0.0.1"
    """Address to listen on; 0.0.0.0 for every interface."""
    port: Port = 4000
    """Port to listen on; 0 for any free one."""
    workers: Workers = 1
    """Processes that share the port. More than one needs a Redis store."""
    max_body: Size = 32 * 1024 * 1024
    """Largest request body, after decompression."""
    client_timeout: Timeout = 60.0
    """Longest wait for a client that neither brings the rest of its request nor takes its answer; 500 bytes a second always do."""
    allowed_hosts: Annotated[tuple[Name, ...], Field(strict=False)] | None = None
    """Hosts of web pages that may call, and names to call by, besides local ones, as names or globs; null: local ones alone where no
    key is asked for on an address of this machine, else any."""
    open: bool = False
    """Whether anybody who reaches the address may spend the upstreams' keys: needed beyond loopback without teams."""
    admin_key: KeyDigest | None = None
    """Key of the operator's API, as a hash or only as ${VAR}."""
    metrics_port: Port | None = None
    """Port of its own for /metrics (of all workers together); null serves it beside the API."""
    admin_port: OwnPort | None = None
    """Port of its own for /admin, which then serves nothing else; null serves it beside the API."""

    @field_validator("metrics_port", "admin_port")
    @classmethod
    def _own_port(cls, value: int | None, info: ValidationInfo) -> int | None:
        names = {"port": "the API", "metrics_port": "metrics"}
        taken = next((name for name in names if value and name != info.field_name and info.data.get(name) == value), None)
        if taken is not None:
            what = "metrics" if info.field_name == "metrics_port" else "/admin"
            raise fault(f"{value} is the port of {names[taken]} too; use another one, or null to serve {what} beside the API")
        return value


def some(value: tuple[str, ...]) -> tuple[str, ...]:
    if not value:
        raise fault("an empty list; name at least one, or take the key out")
    return value


class UpstreamConfig(Section):
    """One model endpoint."""

    base_url: BaseUrl
    """What the client's path, without its /v1, is appended to."""
    api_key: ApiKey = "passthrough"
    """`passthrough` hands on the client's own credentials; else a key, only as ${VAR}."""
    key_header: Literal["authorization", "x-api-key"] | None = None
    """Where a key of its own is sent; null: in x-api-key on the routes of the messages dialect, else as a bearer token."""
    dialects: Annotated[tuple[Literal["chat", "responses", "messages"], ...], Field(strict=False), AfterValidator(some)] = (
        "chat",
        "responses",
        "messages",
    )
    """Wire formats that this upstream speaks."""
    models: Annotated[tuple[Name, ...], Field(strict=False), AfterValidator(some)] = ("*",)
    """Models it serves, as names or globs."""
    ca_file: Name | None = None
    """File of certificate authorities to trust besides the system's (PEM)."""
    verify: bool = True
    """Whether to check the upstream's certificate."""
    proxy: Annotated[ProxyUrl | None, Field(repr=False)] = None
    """HTTP proxy on the way there; null follows HTTPS_PROXY, HTTP_PROXY and NO_PROXY."""
    connect_timeout: Timeout = 10.0
    """Longest wait for a connection, TLS included."""
    read_timeout: Timeout = 600.0
    """Longest silence of the upstream."""

    @field_validator("verify")
    @classmethod
    def _used(cls, value: bool, info: ValidationInfo) -> bool:
        if not value and info.data.get("ca_file") is not None:
            raise fault("false, although a ca_file is given; use true, or take ca_file out")
        return value


class StoreConfig(Section):
    """Where sessions live between requests."""

    url: Annotated[StoreUrl, Field(repr=False)] = "memory://"
    """memory:// (this process), redis:// (shared by replicas), redis+sentinel:// or redis+cluster://; rediss for TLS."""
    failure_mode: Literal["open", "closed"] = "open"
    """While the store is away: `open` forwards and judges from the request alone, `closed` refuses."""
    timeout: Timeout = 0.25
    """Longest wait for one store call."""


class SessionConfig(Section):
    """How requests are joined to sessions."""

    headers: Annotated[tuple[Header, ...], Field(strict=False)] = ()
    """Header names that may carry a session id, tried before the known ones, in order."""
    ttl: Timeout = 21600.0
    """How long an idle session is remembered."""


def _check_rungs(nudge_at: int | None, stop_at: int | None, below: tuple[str, ...]) -> None:
    if nudge_at is not None and stop_at is not None and nudge_at > stop_at:
        raise fault(
            f"{stop_at} lies below nudge_at {nudge_at}, so that the stop would come first and the nudge never; "
            "raise stop_at, lower nudge_at, or set nudge_at: null",
            below=below,
        )


class Rungs(Section):
    """The ladder of a detector, in repeats. Null: no such rung."""

    nudge_at: Rung | None = 3
    """Repeats at which the model is told; null: never."""
    stop_at: Rung | None = 5
    """Repeats at which the run is stopped; null: never."""

    @model_validator(mode="after")
    def _ordered(self) -> "Rungs":
        if {"nudge_at", "stop_at"} <= self.model_fields_set:  # beside a rung of another layer of rules it may be meant
            _check_rungs(self.nudge_at, self.stop_at, ("stop_at",))
        return self


class ParallelRungs(Rungs):
    """The ladder for calls made at once, which are more often meant."""

    nudge_at: Rung | None = 5
    stop_at: Rung | None = 16


class EmptyRungs(Rungs):
    """The ladder for answers that say nothing."""

    nudge_at: Rung | None = 2
    stop_at: Rung | None = 4


class CutRungs(Rungs):
    """The ladder for answers that cannot be carried out: cut short, or a call written as text."""

    nudge_at: FirstRung | None = 1
    stop_at: Rung | None = 4


class ScatteredRungs(Rungs):
    """The ladder for repeats among other calls."""

    nudge_at: Rung | None = 4
    stop_at: Rung | None = 8


class UnknownRungs(Rungs):
    """The ladder for calls that cannot succeed."""

    nudge_at: Rung | None = 2
    stop_at: Rung | None = 4


class ErrorRungs(Rungs):
    """The ladder for one error again and again."""

    nudge_at: Rung | None = 4
    stop_at: Rung | None = 8


class FailureRungs(Rungs):
    """The ladder for failures in a row."""

    nudge_at: Rung | None = 3
    stop_at: Rung | None = 8


class OutputRungs(Rungs):
    """The ladder for one output again and again."""

    nudge_at: Rung | None = 6
    stop_at: Rung | None = 10


class PollRungs(Rungs):
    """The ladder for waiting, which takes longer."""

    nudge_at: Rung | None = 6
    stop_at: Rung | None = 20
    changing_nudge_at: Rung | None = 10
    """Calls in a row with changing results at which the model is told once; null: never. They are never stopped."""


def _rungs_or_off(value: object) -> object:
    """`off` (YAML reads it as false) is a ladder without rungs."""
    if value is False or value == "off":
        return {"nudge_at": None, "stop_at": None}
    if not isinstance(value, dict | Rungs):
        raise fault(f"{shown(value)} is no ladder; use off, or a mapping such as {{nudge_at: 3, stop_at: 5}}")
    return value


_Off = Literal[False, "off"]


class DetectorsConfig(Section):
    """Which loop shapes are looked for. `off`, or a ladder; a rung left out keeps its default."""

    repeated_call: Annotated[Rungs, BeforeValidator(_rungs_or_off, json_schema_input_type=Rungs | _Off)] = Rungs()
    """The same call again, without news."""
    cycle: Annotated[Rungs, BeforeValidator(_rungs_or_off, json_schema_input_type=Rungs | _Off)] = Rungs()
    """Rounds of 2 to 6 different calls with the same results."""
    scattered_call: Annotated[ScatteredRungs, BeforeValidator(_rungs_or_off, json_schema_input_type=ScatteredRungs | _Off)] = (
        ScatteredRungs()
    )
    """The same call with the same result among others, nothing changed in between."""
    parallel_repeat: Annotated[ParallelRungs, BeforeValidator(_rungs_or_off, json_schema_input_type=ParallelRungs | _Off)] = ParallelRungs()
    """Equal calls inside one message."""
    unknown_tool: Annotated[UnknownRungs, BeforeValidator(_rungs_or_off, json_schema_input_type=UnknownRungs | _Off)] = UnknownRungs()
    """Calls to a tool that the request does not list."""
    repeated_error: Annotated[ErrorRungs, BeforeValidator(_rungs_or_off, json_schema_input_type=ErrorRungs | _Off)] = ErrorRungs()
    """The same error of the same tool, whatever the arguments."""
    tool_failures: Annotated[FailureRungs, BeforeValidator(_rungs_or_off, json_schema_input_type=FailureRungs | _Off)] = FailureRungs()
    """Failed calls of any tool in a row."""
    repeated_output: Annotated[OutputRungs, BeforeValidator(_rungs_or_off, json_schema_input_type=OutputRungs | _Off)] = OutputRungs()
    """The same output of the same tool, whatever the arguments."""
    poll: Annotated[PollRungs, BeforeValidator(_rungs_or_off, json_schema_input_type=PollRungs | _Off)] = PollRungs()
    """Waiting calls without change."""
    repeated_text: Annotated[Rungs, BeforeValidator(_rungs_or_off, json_schema_input_type=Rungs | _Off)] = Rungs()
    """Answers without calls that say the same; also one passage again and again inside an answer, which is cut there."""
    empty_output: Annotated[EmptyRungs, BeforeValidator(_rungs_or_off, json_schema_input_type=EmptyRungs | _Off)] = EmptyRungs()
    """Empty answers in a row."""
    truncated_output: Annotated[CutRungs, BeforeValidator(_rungs_or_off, json_schema_input_type=CutRungs | _Off)] = CutRungs()
    """Answers in a row that end at the output limit and get no further."""
    tool_markup: Annotated[CutRungs, BeforeValidator(_rungs_or_off, json_schema_input_type=CutRungs | _Off)] = CutRungs()
    """Answers in a row with a tool call written as text; where no tool can be called, such an answer is asked for again."""


class ToolConfig(Section):
    """What the operator knows about one tool."""

    exempt: bool = False
    """Never counted."""
    effect: Literal["read", "write", "poll", "bookkeeping"] | None = None
    """What a call of it does to the world; null leaves it to Lastcall."""
    nudge_at: Rung | None = None
    """Replaces the detectors' nudge rung for this tool; null: no nudge."""
    stop_at: Rung | None = Field(default=None, validate_default=True)
    """Replaces the detectors' stop rung for this tool; null: no stop."""

    @field_validator("stop_at")
    @classmethod
    def _ordered(cls, value: int | None, info: ValidationInfo) -> int | None:
        _check_rungs(info.data.get("nudge_at"), value, ())
        if info.data.get("exempt") and (value is not None or info.data.get("nudge_at") is not None):
            raise fault("a rung for an exempt tool is never reached; take exempt out, or nudge_at and stop_at")
        return value


class NudgeConfig(Section):
    """The one message to the model."""

    max_per_run: Few = 1
    """Nudges in one run; further loops go to their stop without one. 0: never."""
    text: Template | None = None
    """Wording instead of the built-in one, with {tool}, {count}, {result}, {finish_tool}, {reason}."""
    keep: bool = True
    """Sent again at its place in later requests, so that the model still sees it; false sends it once."""
    holdout: Share = 0.0
    """Share of the runs that are not nudged, chosen by chance, to compare what becomes of them with the others."""


class WrapUpConfig(Section):
    """The last answer of a stopped run."""

    force_finish_tool: Name | None = None
    """Force this tool instead of forbidding tools, for agents that end only by it."""
    retries: Tries = 3
    """Further tries after an empty answer or one with tool markup."""


class TokenLimits(Section):
    """Ceilings of tokens, by direction. A plain number is the total."""

    input: Limit | None = None
    """Tokens read."""
    output: Limit | None = None
    """Tokens written, reasoning included."""
    total: Limit | None = None
    """Both together."""


def _total(value: object) -> object:
    return value if value is None or isinstance(value, dict | TokenLimits) else {"total": whole_limit(value)}


class ExpectConfig(Section):
    """What the text of an answer must be like."""

    contains: Annotated[tuple[Name, ...], Field(strict=False)] = ()
    """Texts that must stand in it, character for character."""
    excludes: Annotated[tuple[Name, ...], Field(strict=False)] = ()
    """Texts that must not."""


class StageConfig(Section):
    """One stage of a client's work, named by the header x-lastcall-stage."""

    expect: ExpectConfig = ExpectConfig()


class BudgetsConfig(Section):
    """What one session may spend. Null: no limit; 0: none at all."""

    steps: Limit | None = None
    """Completed model calls."""
    tokens: Annotated[TokenLimits | None, BeforeValidator(_total, json_schema_input_type=TokenLimits | int | None)] = None
    """Input and output tokens together, or each by itself."""
    cost_usd: Money | None = None
    """Dollars, by the price of the model."""
    deadline: Deadline | None = None
    """Wall-clock time from the session's first request."""


def _none_is_empty(value: object) -> object:
    return {} if value is None else value


class PolicyRules(Section):
    """Rules that may differ between requests. In a layer above another, what is not written stays as it is below."""

    preset: Literal["standard", "plain"] = "standard"
    """Where the defaults of this section come from; keys written beside it override it."""
    mode: Literal["enforce", "observe"] = "enforce"
    """`observe` computes everything and changes nothing."""
    counting: Literal["no_progress", "consecutive", "cumulative"] = "no_progress"
    """What makes a call a repeat."""
    scope: Literal["run", "session"] = "run"
    """How far back repeats count."""
    canonical: Literal["loose", "exact"] = "loose"
    """How alike the arguments of equal calls must be."""
    detectors: DetectorsConfig = DetectorsConfig()
    finish_tools: Annotated[tuple[Name, ...], Field(strict=False)] = (
        "finish_exploration",
        "attempt_completion",
        "final_answer",
        "submit",
        "finish",
    )
    """Tools by which an agent ends its run: they count only when they fail."""
    tools: Annotated[dict[str, ToolConfig], BeforeValidator(_none_is_empty, json_schema_input_type=dict[str, ToolConfig] | None)] = {}
    """What is known about single tools, by name."""
    nudge: NudgeConfig = NudgeConfig()
    on_stop: Literal["wrap_up", "message", "error"] = "wrap_up"
    """What a stopped client gets: a last answer by the model, a message by Lastcall, or HTTP 400."""
    wrap_up: WrapUpConfig = WrapUpConfig()
    repair_calls: bool = False
    """Whether a call that a model wrote as text, whole and of a tool that is offered, is given as the call it means."""
    stages: Annotated[dict[Name, StageConfig], BeforeValidator(_none_is_empty, json_schema_input_type=dict[Name, StageConfig] | None)] = {}
    """What answers must be like in the stages that requests name with x-lastcall-stage."""
    budgets: BudgetsConfig = BudgetsConfig()
    unpriced: Literal["allow", "refuse"] = "allow"
    """What becomes of a call whose model has no price."""


def _without_defaults(schema: dict[str, Any]) -> None:
    for key in schema.get("properties", {}).values():
        key.pop("default", None)


class PolicyLayer(PolicyRules):
    """Rules above others, for a model: each key that is written replaces the one below."""

    model_config = ConfigDict(json_schema_extra=_without_defaults)


LayersByModel = Annotated[dict[Name, PolicyLayer], BeforeValidator(_none_is_empty, json_schema_input_type=dict[Name, PolicyLayer] | None)]


class TeamPolicy(PolicyLayer):
    """Rules above everybody's, for a team, and above these for a model."""

    models: LayersByModel = {}
    """The team's rules for a model, by name or glob; its own entry or the first that fits."""


class PolicyConfig(PolicyRules):
    """The rules of every request."""

    models: LayersByModel = {}
    """Rules for a model, by name or glob; its own entry or the first that fits."""

    @field_validator("detectors")
    @classmethod
    def _ordered(cls, value: DetectorsConfig) -> DetectorsConfig:
        """A rung of a ladder must fit the default of the other."""
        for name in value.model_fields_set:
            rungs: Rungs = getattr(value, name)
            _check_rungs(rungs.nudge_at, rungs.stop_at, (name, "stop_at"))
        return value

    @field_validator("tools")
    @classmethod
    def _reachable(cls, value: dict[str, ToolConfig], info: ValidationInfo) -> dict[str, ToolConfig]:
        """A rung of a tool must fit the rung of `repeated_call` that it leaves as it is."""
        detectors: DetectorsConfig | None = info.data.get("detectors")
        if detectors is None:  # it has a fault of its own
            return value
        ladder = detectors.repeated_call
        for name, tool in value.items():
            given = tool.model_fields_set
            nudge_at = tool.nudge_at if "nudge_at" in given else ladder.nudge_at
            stop_at = tool.stop_at if "stop_at" in given else ladder.stop_at
            if nudge_at is not None and stop_at is not None and nudge_at > stop_at:
                raise fault(f"nudged at {nudge_at} but stopped at {stop_at}, before that; give both nudge_at and stop_at", below=(name,))
        return value
