"""The nouns every layer shares: what a request asks, what an answer says, what Lastcall decides.

Neutral of any dialect; no behaviour beyond reading a value. Wire values that Lastcall may have to judge later are kept as the raw
JSON bytes they arrived in, so that reading them costs nothing until somebody needs to. Structs rather than dataclasses because
they are made by the hundred for each request (`gc=False`: none of them can form a cycle).
"""

from enum import StrEnum

import msgspec


class Action(StrEnum):
    """What Lastcall did with an exchange."""

    __hash__ = str.__hash__  # the one of Enum is written in Python

    ALLOW = "allow"
    NUDGE = "nudge"
    STOP = "stop"
    REFUSE = "refuse"


class Reason(StrEnum):
    """Why it acted: a closed set, also a metric label."""

    __hash__ = str.__hash__  # the one of Enum is written in Python

    REPEATED_CALL = "repeated_call"
    CYCLE = "cycle"
    SCATTERED_CALL = "scattered_call"
    PARALLEL_REPEAT = "parallel_repeat"
    UNKNOWN_TOOL = "unknown_tool"
    REPEATED_ERROR = "repeated_error"
    REPEATED_OUTPUT = "repeated_output"
    POLL = "poll"
    REPEATED_TEXT = "repeated_text"
    EMPTY_OUTPUT = "empty_output"
    TRUNCATED_OUTPUT = "truncated_output"
    TOOL_FAILURES = "tool_failures"
    TOOL_MARKUP = "tool_markup"
    EXPECT = "expect"
    STEP_BUDGET = "step_budget"
    TOKEN_BUDGET = "token_budget"
    COST_BUDGET = "cost_budget"
    DEADLINE = "deadline"
    TEAM_BUDGET = "team_budget"
    OPERATOR = "operator"


TEXT_REASONS = frozenset({Reason.REPEATED_TEXT, Reason.EMPTY_OUTPUT, Reason.TRUNCATED_OUTPUT, Reason.TOOL_MARKUP})
"""Those about what answers say, with or without tools, instead of about calls."""
BUDGET_REASONS = (Reason.STEP_BUDGET, Reason.TOKEN_BUDGET, Reason.COST_BUDGET, Reason.DEADLINE, Reason.TEAM_BUDGET)


class Role(StrEnum):
    """Who speaks in an item of history. `developer` counts as system."""

    __hash__ = str.__hash__  # the one of Enum is written in Python

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class ToolCall(msgspec.Struct, frozen=True, gc=False):
    """One call the model made. `arguments` is the raw argument text (JSON for functions, free text for custom tools).

    kind: the dialect's own word for a call that is neither, of a tool built into it.
    """

    id: str | None
    name: str
    arguments: str
    custom: bool = False
    kind: str = ""


HOSTED = "hosted"


class Item(msgspec.Struct, frozen=True, gc=False):
    """One entry of a request's history, in wire order.

    content: the raw JSON value (a string or a list of parts), b"" where the message had none. calls: an assistant's tool calls.
    call_id: on tool results, the call they answer. failed: a tool result the client itself marked as an error. place: the element of the
    body's list it was read from, where one element holds several items or several make one. kind: of a result, that of its call; `HOSTED`
    where the provider carried it out, so that it is part of an answer, and of that call.
    """

    role: Role
    content: bytes = b""
    calls: tuple[ToolCall, ...] = ()
    call_id: str | None = None
    failed: bool = False
    place: int = 0
    kind: str = ""


class Reference(msgspec.Struct, frozen=True, gc=False):
    """What a history names by its id alone, since the upstream has it. item: index of the item that follows. place: as in `Item`."""

    id: str
    item: int
    place: int


class Groundwork(msgspec.Struct, gc=False):
    """What was made of a request's items once, for the request that goes on from them. own: of this one; before: of the one it began with.

    Whoever makes it knows its type. It never holds a request.
    """

    own: object = None
    before: object = None


class Request(msgspec.Struct, frozen=True, gc=False):
    """What Lastcall reads of a request; `body` holds all of it, untouched.

    tools: names of the offered tools, in order. tools_raw: their raw JSON (b"" when absent), for telling tool sets apart.
    max_output: the client's own output limit in tokens. wants_usage: whether the client asked for usage in the stream.
    goes_on_from: id of the response, or of the conversation, that the upstream keeps and this request continues; its items are only what
    is new. conversation: it is a conversation, which the answer joins. kept: the upstream keeps the answer, so that a request may go on
    from it. background: it goes on with the answer when nobody listens. hints: body fields that may name a session (`session_id`,
    `prompt_cache_key`, `metadata.session_id`, …), strings only.
    attachments: content parts that are not text (pictures, sound, files). picture_bytes: what pictures take of the body.
    tier: the service tier that it asks for, "" without a wish. searches: of the web, that it lets the provider make at most, as far as it
    says; searched: its answers do not say that one was made, and each makes one. refers: to what its history only names.
    elements: of the body's list that the items were read from. groundwork: see there; of no meaning for what the request says.
    """

    body: bytes
    model: str
    items: tuple[Item, ...]
    tools: tuple[str, ...] = ()
    tools_raw: bytes = b""
    tools_off: bool = False
    stream: bool = False
    wants_usage: bool = False
    choices: int = 1
    max_output: int | None = None
    hints: dict[str, str] = {}
    attachments: int = 0
    picture_bytes: int = 0
    goes_on_from: str | None = None
    conversation: bool = False
    kept: bool = False
    background: bool = False
    tier: str = ""
    searches: int = 0
    searched: bool = False
    refers: tuple[Reference, ...] = ()
    elements: int = 0
    groundwork: Groundwork = msgspec.field(default_factory=Groundwork)

    def grown(self, body: bytes, items: tuple[Item, ...], elements: int, attachments: int, picture_bytes: int) -> "Request":
        """This request with more at the end of its history."""
        return msgspec.structs.replace(
            self,
            body=body,
            items=self.items + items,
            elements=self.elements + elements,
            attachments=self.attachments + attachments,
            picture_bytes=self.picture_bytes + picture_bytes,
            groundwork=Groundwork(None, self.groundwork.own),
        )

    @property
    def may_call(self) -> bool:
        """Whether the answer may call a tool."""
        return bool(self.tools) and not self.tools_off

    @property
    def text_bytes(self) -> int:
        """The body's size without pictures, whose cost has nothing to do with their bytes."""
        return len(self.body) - self.picture_bytes


class Insert(msgspec.Struct, frozen=True, gc=False):
    """Text to append to the content of the history item at `item` (an index into `Request.items`)."""

    item: int
    text: str


class Owed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A call in a history that the upstream keeps, to which no result was ever sent. kind: that of the call, "" for a function."""

    id: str
    kind: str = ""


class Edits(msgspec.Struct, frozen=True, gc=False):
    """Everything Lastcall changes in one request. The default changes nothing.

    no_tools: `tool_choice: none`, tools stay listed. force_tool: that tool must be called. ask_usage: ask the upstream for a
    stream's usage. max_output: lower the output limit to this many tokens. go_on_from: another response that the upstream keeps, "" for
    none. owed: results of these calls, all saying `owed_text`, come before the items; alone: they come in the place of them.
    asked: this text of a user's comes in the place of the items.
    """

    inserts: tuple[Insert, ...] = ()
    no_tools: bool = False
    force_tool: str | None = None
    ask_usage: bool = False
    max_output: int | None = None
    go_on_from: str | None = None
    owed: tuple[Owed, ...] = ()
    owed_text: str = ""
    alone: bool = False
    asked: str = ""


class Usage(msgspec.Struct, frozen=True, gc=False):
    """Tokens of one upstream call. input_tokens: all that was read, whatever a provider calls its input; cached and written (to the
    provider's cache, which costs more) are disjoint parts of it, kept ⊆ written those that stay there for an hour. reasoning ⊆ output.
    audio_…, image_…: parts of their side that are sound and pictures. tier: the service tier that it was served in, "" where nobody says.
    searches: of the web, made by the provider. trained_tokens: the part of the input that a model was trained with.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    written_tokens: int = 0
    kept_tokens: int = 0
    audio_input: int = 0
    audio_output: int = 0
    image_input: int = 0
    image_output: int = 0
    tier: str = ""
    searches: int = 0
    trained_tokens: int = 0


class Choice(msgspec.Struct, frozen=True, gc=False):
    """One alternative of an answer (`n` > 1 gives several). finish: the upstream's own word, None when it gave none.

    hosted: calls that the provider carried out itself, before the others. items: by which ids a history may refer to its parts.
    thought: what the upstream shows of its reasoning, where the answer holds nothing else: no text, no call, nothing hosted, no picture.
    """

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    finish: str | None = None
    hosted: tuple[ToolCall, ...] = ()
    items: tuple[str, ...] = ()
    thought: str = ""


class Answer(msgspec.Struct, frozen=True, gc=False):
    """What an upstream answered, from a whole body or from a stream observed to its end.

    complete: it ended the way the dialect ends an answer (a finish reason or the terminator was seen). error: the upstream reported
    an error inside an otherwise successful response.
    """

    choices: tuple[Choice, ...] = ()
    usage: Usage | None = None
    id: str | None = None
    model: str | None = None
    created: int | None = None
    complete: bool = False
    error: bool = False


class Head(msgspec.Struct, frozen=True, gc=False):
    """The identifying fields of an answer that Lastcall writes itself: id, model and creation time (epoch seconds)."""

    id: str
    model: str
    created: int


class Begun(msgspec.Struct, frozen=True, gc=False):
    """A streamed answer that Lastcall brings to its end. choices: how many it has.

    started: events of it went out already, so that its opening must not be repeated; called: calls of it did. sent: how far it had come
    then, from the reader's `sent`.
    """

    head: Head
    choices: int = 1
    started: bool = False
    called: bool = False
    sent: object = None


class Finding(msgspec.Struct, frozen=True, gc=False):
    """A loop shape seen in a trail.

    reason: the detector. tool: the tool's name. count: how often; nudge_at/stop_at: the ladder it climbs (None: no such rung).
    calls: fingerprints that make up the loop. across: the loop is one of a tool, whose calls differ.
    """

    reason: Reason
    tool: str
    count: int
    nudge_at: int | None
    stop_at: int | None
    calls: frozenset[int]
    across: bool = False

    @property
    def stops(self) -> bool:
        return self.stop_at is not None and self.count >= self.stop_at

    @property
    def nudges(self) -> bool:
        return self.nudge_at is not None and self.count >= self.nudge_at


class Allowance(msgspec.Struct, frozen=True, gc=False):
    """What one budget allows, as people and models are told of it.

    reason: how it ends a run. unit: `steps`, `tokens`, `input`, `output`, `cost` (dollars), `deadline` (seconds), `calls` or `sessions` (at
    once). limit, spent: in that unit. scope: whose it is, `session`, `parent` or `team`. per: the stretch of the calendar (`day`), "" for
    the whole life. resets_at: when that stretch ends, epoch seconds. held: by calls under way, where nothing else is in the way; else None.
    """

    reason: Reason
    unit: str
    limit: float
    spent: float
    scope: str = "session"
    per: str = ""
    resets_at: float | None = None
    held: float | None = None

    @property
    def passes(self) -> bool:
        """Whether nothing is used up: only what calls under way hold is in the way, or how many they are, and one that ends makes room."""
        return self.held is not None or (self.unit in ("calls", "sessions") and self.limit > 0)


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """The `lastcall` object of a stop or refusal, field by field as clients see it (None where it does not apply).

    scope: `run` for a stop, `call` for calls left out of a message, a budget's own. spent/limit: in the budget's unit or in
    repeats. held: of a budget, by calls under way, where that alone is in the way. resets_at: epoch seconds. trail: up to 16 entries
    {"tool", "count", "outcome"}.
    """

    action: Action
    reason: Reason
    message: str
    detector: str | None = None
    tool: str | None = None
    count: int | None = None
    limit: float | None = None
    scope: str | None = None
    spent: float | None = None
    held: float | None = None
    resets_at: float | None = None
    session: str | None = None
    degraded: bool | None = None
    last_error: str | None = None
    trail: tuple[dict[str, str | int], ...] = ()


def text_of(content: bytes) -> str:
    """The plain text of a raw content value: the string itself, or the text parts joined by newlines; "" for anything else."""
    if not content or content == b"null":
        return ""
    try:
        value = msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return content.decode("utf-8", "replace")
    match value:
        case str():
            return value
        case list():
            texts = [part.get("text") if isinstance(part, dict) else part for part in value]
            return "\n".join(text for text in texts if isinstance(text, str))
        case _:
            return ""
