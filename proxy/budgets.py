"""What a call may cost before it is made, and what it cost when nobody says: arithmetic on integers.

The ledger itself is the store's, since only the store can add under concurrency; here is what goes into it.
"""

import msgspec

from proxy.models import Allowance, Answer, Reason, Request, Usage

TEMPLATE_TOKENS = 256  # what a provider's chat template and hidden instructions add to a request, at most
LARGEST_OUTPUT = 131_072  # the largest output limit of any model known; what an unlimited answer may cost
MODEST_OUTPUT = 4_096  # what a call falls back to when the largest no longer fits
USEFUL_OUTPUT = 256  # less than this is no answer
ATTACHMENT_TOKENS = 16_384  # a picture at most, in bytes or by reference (gpt-4o-mini alone counts up to three times that)
_USUAL_ATTACHMENT = 1_024  # a picture, where a provider reports no usage
BYTES_PER_TOKEN = 4  # English text and code, where a provider reports no usage

SEARCH = "web_search"  # what providers call their search of the web

NOTICE_AT = 0.8  # the used share of a budget at which the model is told

REASONS = {
    "deadline": Reason.DEADLINE,
    "steps": Reason.STEP_BUDGET,
    "input": Reason.TOKEN_BUDGET,
    "output": Reason.TOKEN_BUDGET,
    "tokens": Reason.TOKEN_BUDGET,
    "cost": Reason.COST_BUDGET,
    "calls": Reason.TEAM_BUDGET,
    "sessions": Reason.TEAM_BUDGET,
}


class Estimate(msgspec.Struct, frozen=True, gc=False):
    """Upper bounds of one call in tokens; the fields of `store.Reservation` they fill."""

    input_bound: int
    attached: int
    output: int
    modest: int
    floor: int


class Spending(msgspec.Struct, frozen=True, gc=False):
    """What the ledgers said to a request.

    refused: the budget that has nothing left for it. last: the budget this call exhausts. nearly: those of which most is used.
    above: why a session above this one stands stopped.
    """

    refused: Allowance | None = None
    last: Allowance | None = None
    nearly: tuple[Allowance, ...] = ()
    above: Reason | None = None


def wanted_output(request: Request) -> int:
    """The most output tokens that the request's answer may have: the client's own limit, for each choice."""
    return (LARGEST_OUTPUT if request.max_output is None else max(request.max_output, 0)) * request.choices


def estimate(request: Request, token_limit: int | None) -> Estimate:
    """What to reserve: a token of text is at least a byte, so the body's size bounds the input; the client's limit bounds the answer."""
    choices, wanted = request.choices, wanted_output(request)
    share = MODEST_OUTPUT if token_limit is None else max(USEFUL_OUTPUT, min(MODEST_OUTPUT, token_limit // 8))
    modest, floor = share * choices, USEFUL_OUTPUT * choices
    return Estimate(
        request.text_bytes + TEMPLATE_TOKENS,
        request.attachments * ATTACHMENT_TOKENS,
        wanted,
        modest if modest < wanted else wanted,
        floor if floor < wanted else wanted,
    )


def clamp(request: Request, granted: int | None, wanted: int) -> int | None:
    """The output limit to send upstream, None to leave the client's alone: lowered only where less was granted than wanted."""
    if granted is None or granted >= wanted:
        return None
    return max(1, granted // max(1, request.choices))


def usage_of(answer: Answer, request: Request) -> tuple[Usage, bool]:
    """The call's usage and whether it had to be estimated: from text sizes, when the provider reported none."""
    if answer.usage is not None:
        if request.searched and not answer.usage.searches:
            return msgspec.structs.replace(answer.usage, searches=len(answer.choices)), False
        return answer.usage, False
    written = sum(
        len(choice.text.encode("utf-8", "surrogatepass"))
        + sum(len(call.name) + len(call.arguments.encode("utf-8", "surrogatepass")) for call in choice.calls)
        for choice in answer.choices
    )
    read = -(-request.text_bytes // BYTES_PER_TOKEN) + request.attachments * _USUAL_ATTACHMENT
    searches = len(answer.choices) if request.searched else sum(call.name == SEARCH for choice in answer.choices for call in choice.hosted)
    return Usage(read, -(-written // BYTES_PER_TOKEN), searches=searches), True
