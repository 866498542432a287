"""What tokens cost, by model: from the configuration and from a price list such as the one that litellm ships. Pure.

Money is whole nano-dollars, rates are whole pico-dollars per token, both rounded up, so that no sum of many calls falls short of
the bill. Zero is a price; a model that nobody prices has none, which is something else. Where the list is found is the business of
`pricelist`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from decimal import ROUND_CEILING, Decimal
from typing import Any

import msgspec

from proxy.bounded import Bounded
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
_DEAREST_UNIT = 1000.0  # likewise for a picture, a second or a call
_TIERS = {"priority": "_priority", "flex": "_flex", "batch": "_batches", "ultrafast": "_ultrafast"}  # in providers' words and the list's
_DRAWING = frozenset({"image_generation", "image_edit"})
_SOUNDING = frozenset({"audio_transcription", "audio_speech", "video_generation"})
_ASKED = frozenset({"rerank", "search"})
_SILENT = _DRAWING | _ASKED | {"embedding", "moderation", "audio_transcription"}
_ABOVE = re.compile(r"input_cost_per_token_above_(\d+)k_tokens")


class Rates(msgspec.Struct, frozen=True, gc=False):
    """Pico-dollars per token. cached, written: input read from, and written to, the provider's cache; kept: written to stay for an hour.
    reasoning: a part of the output. audio_…, image_…: sound and pictures, of either side.

    most_input, most_output: the dearest that a token of either side can be, whatever kind it turns out to be.
    """

    input: int
    output: int
    cached: int
    written: int
    kept: int
    reasoning: int
    audio_input: int
    audio_output: int
    image_input: int
    image_output: int
    most_input: int
    most_output: int


class Units(msgspec.Struct, frozen=True, gc=False):
    """Pico-dollars for what is not counted in tokens: a call, a picture made, a second of sound or film, a character to be spoken, a search
    of the web that the provider makes while it answers. training: of a token that a model is trained with, 0 where nobody says."""

    call: int = 0
    picture: int = 0
    second: int = 0
    character: int = 0
    search: int = 0
    training: int = 0


class Amounts(msgspec.Struct, frozen=True, gc=False):
    """How much of that a call has."""

    pictures: int = 0
    seconds: int = 0
    characters: int = 0


class Price(msgspec.Struct, frozen=True, gc=False):
    """The rates of one model. steps: (input tokens, rates), ascending; calls with more input than that pay these rates for every token.

    tiers: the price in another service tier than the usual, by its name.
    """

    rates: Rates
    steps: tuple[tuple[int, Rates], ...] = ()
    units: Units = Units()
    tiers: tuple[tuple[str, "Price"], ...] = ()

    def at(self, input_tokens: int) -> Rates:
        """The rates of a call with that much input."""
        if not self.steps:
            return self.rates
        return next((rates for above, rates in reversed(self.steps) if input_tokens > above), self.rates)

    def in_tier(self, tier: str) -> "Price":
        """The price in that service tier: the usual one where it has none of its own."""
        return next((price for name, price in self.tiers if name == tier), self) if tier and self.tiers else self


def rates_of(
    input_rate: int,
    output_rate: int,
    *,
    cached: int | None = None,
    written: int | None = None,
    kept: int | None = None,
    reasoning: int | None = None,
    audio: tuple[int | None, int | None] = (None, None),
    image: tuple[int | None, int | None] = (None, None),
) -> Rates:
    """Rates in pico-dollars. What is None costs what the rest of its side does, what is kept in a cache what is written to it.

    audio, image: of input and of output.
    """
    cached = input_rate if cached is None else cached
    written = input_rate if written is None else written
    reasoning = output_rate if reasoning is None else reasoning
    kept = written if kept is None else kept
    heard, seen = (input_rate if rate is None else rate for rate in (audio[0], image[0]))
    spoken, drawn = (output_rate if rate is None else rate for rate in (audio[1], image[1]))
    most = max(input_rate, cached, written, kept, heard, seen), max(output_rate, reasoning, spoken, drawn)
    return Rates(input_rate, output_rate, cached, written, kept, reasoning, heard, spoken, seen, drawn, *most)


def cost(price: Price, usage: Usage) -> int:
    """What the tokens of a call cost, and its searches, in nano-dollars, rounded up."""
    rates = price.in_tier(usage.tier).at(usage.input_tokens)
    plain = max(usage.input_tokens - usage.cached_tokens - usage.written_tokens, 0)
    told = max(usage.output_tokens - usage.reasoning_tokens, 0)
    read = plain * rates.input + usage.cached_tokens * rates.cached + usage.written_tokens * rates.written
    paid = read + told * rates.output + usage.reasoning_tokens * rates.reasoning
    if usage.kept_tokens:
        paid += min(usage.kept_tokens, usage.written_tokens) * (rates.kept - rates.written)
    if usage.audio_input or usage.image_input:
        paid += _beyond(plain, rates.input, (usage.audio_input, rates.audio_input), (usage.image_input, rates.image_input))
    if usage.audio_output or usage.image_output:
        paid += _beyond(told, rates.output, (usage.audio_output, rates.audio_output), (usage.image_output, rates.image_output))
    if usage.trained_tokens and price.units.training:
        paid += usage.trained_tokens * (price.units.training - rates.input)
    if usage.searches:
        paid += usage.searches * price.units.search
    return -(-paid // _PICO_PER_NANO)


def search_cost(price: Price, searches: int) -> int:
    """What so many searches cost, in nano-dollars, rounded up."""
    return -(-searches * price.units.search // _PICO_PER_NANO)


def _beyond(tokens: int, rate: int, *parts: tuple[int, int]) -> int:
    """How much more tokens come to of which some have rates of their own. parts: (tokens, rate)."""
    more = 0
    for part, own in parts:
        part = min(part, tokens)
        more += part * (own - rate)
        tokens -= part
    return more


def unit_cost(units: Units, amounts: Amounts, *, told: bool) -> int:
    """What a call costs beside its tokens, in nano-dollars, rounded up.

    told: its answer said how many tokens it took: then pictures and sound are among these, and are not paid twice.
    """
    paid = units.call + units.character * amounts.characters
    if not told:
        paid += units.picture * amounts.pictures + units.second * amounts.seconds
    return -(-paid // _PICO_PER_NANO)


def bounds(price: Price, input_tokens: int, tier: str = "") -> tuple[int, int]:
    """The most that a token of input, and one of output, can cost in a call with at most that much input, in pico-dollars.

    tier: the service tier that the request asks for. It may be served in the usual one.
    """
    served = price.in_tier(tier)
    if served is price and not price.steps:
        return price.rates.most_input, price.rates.most_output
    within = [rates for one in (price, served) for rates in (one.rates, *(rates for above, rates in one.steps if input_tokens > above))]
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
        self._known: Bounded[tuple[str, str], Price | None] = Bounded(_MAX_REMEMBERED)

    def __bool__(self) -> bool:
        """Whether anything has a price."""
        return bool(self._own or self._listed)

    def sized(self, model: str, upstream: str, quality: str, size: str) -> Price | None:
        """The price of a model that makes pictures: that of its pictures of a quality and a size (`1024x1024`), where the list has it."""
        by_size = f"{size.replace('x', '-x-')}/{model}"
        names = [*([f"{quality}/{by_size}"] if quality and size else []), *([by_size] if size else []), model]
        return next((price for name in names if (price := self.of(name, upstream)) is not None), None)

    def of(self, model: str, upstream: str = "") -> Price | None:
        """The price of a model behind an upstream; None when nobody states one."""
        if len(model) > _LONGEST_NAME:
            return None
        key = model, upstream
        if key in self._known:
            return self._known[key]
        return self._known.keep(key, next(self._found(model, upstream), None))

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

    def rate(dollars: float | None) -> int | None:
        return None if dollars is None else pico(Decimal(str(dollars)) / tokens)

    return Price(
        rates_of(
            rate(price.input) or 0,
            rate(price.output) or 0,
            cached=rate(price.cached),
            written=rate(price.cache_write),
            kept=rate(price.cache_write_1h),
            reasoning=rate(price.reasoning),
        ),
        units=Units(
            picture=pico(price.image or 0),
            second=pico(price.second or 0),
            search=pico(price.search or 0),
            training=rate(price.training) or 0,
        ),
    )


def read_list(data: bytes) -> dict[str, Price]:
    """The prices of a list in litellm's format, by its names. An entry without a price per token has none. Raises `ValueError`."""
    try:
        entries = msgspec.json.decode(data, type=dict[str, dict[str, Any]])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"not a price list: {error}") from None
    prices = {name: _price(entry) for name, entry in entries.items() if name != _EXAMPLE}
    return {name: price for name, price in prices.items() if price is not None}


def _price(entry: dict[str, Any]) -> Price | None:
    units = _units(entry)
    price = _of_tokens(entry, "")
    if price is None:
        return None if units == Units() else Price(rates_of(0, 0), units=units)
    tiers = tuple((tier, of_tier) for tier, suffix in _TIERS.items() if (of_tier := _in_tier(entry, suffix)) is not None)
    return msgspec.structs.replace(price, units=units, tiers=tiers)


def _in_tier(entry: dict[str, Any], suffix: str) -> Price | None:
    return _of_tokens(entry, suffix) if f"input_cost_per_token{suffix}" in entry else None


def _of_tokens(entry: dict[str, Any], tier: str) -> Price | None:
    rates = _rates(entry, "", tier)
    if rates is not None:
        above = sorted(int(found[1]) for key in entry if (found := _ABOVE.fullmatch(key)))
        return Price(rates, tuple((thousands * 1000, _rates(entry, f"_above_{thousands}k_tokens", tier) or rates) for thousands in above))
    steps = sorted(_tiered(entry.get("tiered_pricing")), key=lambda step: step[0])
    return Price(steps[0][1], tuple(steps[1:])) if steps else None


def _tiered(tiers: object) -> Iterator[tuple[int, Rates]]:
    """The other way in which the list says that long calls cost more: [{"range": [from, to], rates…}, …]."""
    for tier in tiers if isinstance(tiers, list) else ():
        match tier:
            case {"range": [int() | float() as above, *_]} if (rates := _rates(tier, "", "")) is not None:
                yield int(above), rates


def _rates(entry: dict[str, Any], step: str, tier: str) -> Rates | None:
    """The rates of an entry, or of one of its steps or tiers, in which whatever is not stated costs what it did before."""

    def rate(name: str) -> int | None:
        value = next((entry[stated] for stated in (name + step + tier, name + step, name + tier, name) if stated in entry), None)
        return pico(value) if isinstance(value, int | float) and 0 <= value < _DEAREST else None

    read, told = rate("input_cost_per_token"), rate("output_cost_per_token")
    drawn, spoken = rate("output_cost_per_image_token"), rate("output_cost_per_audio_token")
    if told is None:  # what makes nothing but pictures or sound, and what answers without a word
        told = drawn if drawn is not None else spoken
    if told is None and entry.get("mode") in _SILENT:
        told = 0
    if read is None or told is None:
        return None
    return rates_of(
        read,
        told,
        cached=rate("cache_read_input_token_cost"),
        written=rate("cache_creation_input_token_cost"),
        kept=rate("cache_creation_input_token_cost_above_1hr"),
        reasoning=rate("output_cost_per_reasoning_token"),
        audio=(rate("input_cost_per_audio_token"), spoken),
        image=(rate("input_cost_per_image_token"), drawn),
    )


def _units(entry: dict[str, Any]) -> Units:
    """What an entry costs beside its tokens, for the kinds of model that are paid so. One amount may stand under either side's name."""
    mode = entry.get("mode")
    searched = entry.get("search_context_cost_per_query")

    def dearest(values: Iterable[object]) -> int:
        return max([pico(value) for value in values if isinstance(value, int | float) and 0 <= value < _DEAREST_UNIT], default=0)

    def rate(*names: str) -> int:
        return dearest([entry.get(name) for name in names])

    return Units(
        call=rate("input_cost_per_query", "input_cost_per_request") if mode in _ASKED else 0,
        picture=rate("input_cost_per_image", "output_cost_per_image") if mode in _DRAWING else 0,
        second=rate("input_cost_per_second", "output_cost_per_second", "output_cost_per_video_per_second") if mode in _SOUNDING else 0,
        character=rate("input_cost_per_character") if mode == "audio_speech" else 0,
        search=dearest(searched.values()) if isinstance(searched, dict) else 0,  # of low, medium and high
    )


def pico(dollars: float | Decimal) -> int:
    """Dollars as pico-dollars, rounded up. Takes the decimal number that a float was written as, not the binary one next to it."""
    return int((Decimal(str(dollars)) * PICO_PER_DOLLAR).to_integral_value(ROUND_CEILING))


def nano(dollars: float | Decimal) -> int:
    """Dollars as nano-dollars, rounded down: what a limit allows."""
    return int(Decimal(str(dollars)) * NANO_PER_DOLLAR)
