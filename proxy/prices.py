"""What tokens cost, by model: from the configuration and from a price list such as the one that litellm ships. Pure.

Money is whole nano-dollars, rates are whole pico-dollars per token, both rounded up, so that no sum of many calls falls short of
the bill. Zero is a price; a model that nobody prices has none, which is something else. Where the list is found is the business of
`pricelist`.
"""

import re
from collections.abc import Iterator, Mapping
from decimal import ROUND_CEILING, Decimal
from typing import Any

import msgspec

from proxy.config import PriceConfig
from proxy.globs import entry_for
from proxy.models import Usage

NANO_PER_DOLLAR = 10**9
PICO_PER_DOLLAR = 10**12
_PICO_PER_NANO = 1000
_MAX_REMEMBERED = 1024
_LONGEST_NAME = 256  # characters; a client names it
_DEAREST = 1.0  # dollars per token: above it a number is no price
_EXAMPLE = "sample_spec"  # an entry of litellm's list that explains the others
_ABOVE = re.compile(r"input_cost_per_token_above_(\d+)k_tokens")


class Rates(msgspec.Struct, frozen=True, gc=False):
    """Pico-dollars per token. cached, written: input read from, and written to, the provider's cache. reasoning: a part of the output.

    most_input, most_output: the dearest that a token of either side can be, whatever kind it turns out to be.
    """

    input: int
    output: int
    cached: int
    written: int
    reasoning: int
    most_input: int
    most_output: int


class Price(msgspec.Struct, frozen=True, gc=False):
    """The rates of one model. steps: (input tokens, rates), ascending; calls with more input than that pay these rates for every token."""

    rates: Rates
    steps: tuple[tuple[int, Rates], ...] = ()

    def at(self, input_tokens: int) -> Rates:
        """The rates of a call with that much input."""
        return next((rates for above, rates in reversed(self.steps) if input_tokens > above), self.rates)


def rates_of(
    input_rate: int, output_rate: int, *, cached: int | None = None, written: int | None = None, reasoning: int | None = None, kept: int = 0
) -> Rates:
    """Rates in pico-dollars. What is None costs what the rest of its side does. kept: for cache entries of longer life, where dearer."""
    cached = input_rate if cached is None else cached
    written = input_rate if written is None else written
    reasoning = output_rate if reasoning is None else reasoning
    dearest = max(input_rate, cached, written, kept)
    return Rates(input_rate, output_rate, cached, written, reasoning, dearest, max(output_rate, reasoning))


def cost(price: Price, usage: Usage) -> int:
    """What a call cost, in nano-dollars, rounded up."""
    rates = price.at(usage.input_tokens)
    plain = max(usage.input_tokens - usage.cached_tokens - usage.written_tokens, 0)
    told = max(usage.output_tokens - usage.reasoning_tokens, 0)
    read = plain * rates.input + usage.cached_tokens * rates.cached + usage.written_tokens * rates.written
    return -(-(read + told * rates.output + usage.reasoning_tokens * rates.reasoning) // _PICO_PER_NANO)


def bounds(price: Price, input_tokens: int) -> tuple[int, int]:
    """The most that a token of input, and one of output, can cost in a call with at most that much input, in pico-dollars."""
    within = [price.rates, *(rates for above, rates in price.steps if input_tokens > above)]
    return max(rates.most_input for rates in within), max(rates.most_output for rates in within)


class Prices:
    """Finds the price of a model.

    own: by model name or glob, as the configuration states them; they go before the list. listed: by exact name. A name is looked up
    with its upstream's in front (`groq/llama-3.3-70b-versatile`), then alone, so that an upstream that bears a provider's name in
    the list gets that provider's prices.
    """

    def __init__(self, own: Mapping[str, Price], listed: Mapping[str, Price]) -> None:
        self._own = own
        self._listed = listed
        self._known: dict[tuple[str, str], Price | None] = {}

    def __bool__(self) -> bool:
        """Whether anything has a price."""
        return bool(self._own or self._listed)

    def of(self, model: str, upstream: str = "") -> Price | None:
        """The price of a model behind an upstream; None when nobody states one."""
        key = model[: _LONGEST_NAME + 1], upstream
        if key in self._known:
            return self._known[key]
        if len(model) > _LONGEST_NAME:
            return None
        if len(self._known) >= _MAX_REMEMBERED:
            del self._known[next(iter(self._known))]
        found = self._known[key] = next(self._found(model, upstream), None)
        return found

    def _found(self, model: str, upstream: str) -> Iterator[Price]:
        names = f"{upstream}/{model}", model
        yield from (self._own[name] for name in names if name in self._own)
        yield from (self._own[entry] for name in names if (entry := entry_for(name, self._own)) is not None)
        yield from (self._listed[name] for name in names if name in self._listed)


def stated(prices: Mapping[str, PriceConfig]) -> dict[str, Price]:
    """The configuration's own prices, by its names and globs."""
    return {name: _stated(price) for name, price in prices.items()}


def _stated(price: PriceConfig) -> Price:
    tokens = 1_000_000 if price.per == "million" else 1

    def rate(dollars: float) -> int:
        return pico(Decimal(str(dollars)) / tokens)

    cached, written, reasoning = (None if value is None else rate(value) for value in (price.cached, price.cache_write, price.reasoning))
    return Price(rates_of(rate(price.input), rate(price.output), cached=cached, written=written, reasoning=reasoning))


def read_list(data: bytes) -> dict[str, Price]:
    """The prices of a list in litellm's format, by its names. An entry without a price per token has none. Raises `ValueError`."""
    try:
        entries = msgspec.json.decode(data, type=dict[str, dict[str, Any]])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"not a price list: {error}") from None
    prices = {name: _price(entry) for name, entry in entries.items() if name != _EXAMPLE}
    return {name: price for name, price in prices.items() if price is not None}


def _price(entry: dict[str, Any]) -> Price | None:
    rates = _rates(entry, "")
    if rates is not None:
        above = sorted(int(found[1]) for key in entry if (found := _ABOVE.fullmatch(key)))
        return Price(rates, tuple((thousands * 1000, _rates(entry, f"_above_{thousands}k_tokens") or rates) for thousands in above))
    steps = sorted(_tiers(entry.get("tiered_pricing")), key=lambda step: step[0])
    return Price(steps[0][1], tuple(steps[1:])) if steps else None


def _tiers(tiers: object) -> Iterator[tuple[int, Rates]]:
    """The other way in which the list says that long calls cost more: [{"range": [from, to], rates…}, …]."""
    for tier in tiers if isinstance(tiers, list) else ():
        match tier:
            case {"range": [int() | float() as above, *_]} if (rates := _rates(tier, "")) is not None:
                yield int(above), rates


def _rates(entry: dict[str, Any], step: str) -> Rates | None:
    """The rates of an entry, or of one of its steps, in which whatever is not stated costs what it did before."""

    def rate(name: str) -> int | None:
        value = entry.get(name + step, entry.get(name))
        return pico(value) if isinstance(value, int | float) and 0 <= value < _DEAREST else None

    read, told = rate("input_cost_per_token"), rate("output_cost_per_token")
    if read is None or told is None:
        return None
    return rates_of(
        read,
        told,
        cached=rate("cache_read_input_token_cost"),
        written=rate("cache_creation_input_token_cost"),
        reasoning=rate("output_cost_per_reasoning_token"),
        kept=rate("cache_creation_input_token_cost_above_1hr") or 0,
    )


def pico(dollars: float | Decimal) -> int:
    """Dollars as pico-dollars, rounded up. Takes the decimal number that a float was written as, not the binary one next to it."""
    return int((Decimal(str(dollars)) * PICO_PER_DOLLAR).to_integral_value(ROUND_CEILING))


def nano(dollars: float | Decimal) -> int:
    """Dollars as nano-dollars, rounded down: what a limit allows."""
    return int(Decimal(str(dollars)) * NANO_PER_DOLLAR)
