"""What calls cost: rates, steps, kinds of tokens, rounding, and which price a model has."""

import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.config import PriceConfig
from proxy.models import Usage
from proxy.prices import Amounts, Price, Prices, Rates, Units, bounds, cost, nano, pico, rates_of, read_list, search_cost, stated, unit_cost

CHEAP = Price(rates_of(1, 2))
DEAR = Price(rates_of(10, 20))
TOKENS = st.integers(0, 2_000_000)
RATE = st.integers(0, 600_000_000)


def listed(**entry: object) -> Price | None:
    return read_list(json.dumps({"model": entry}).encode()).get("model")


@pytest.mark.parametrize(
    ("dollars", "rate"),
    [(1.25e-06, 1_250_000), (2.8e-08, 28_000), (0, 0), (1.3e-10, 130), (0.1e-12, 1), (6e-4, 600_000_000)],
)
def test_rates_are_the_decimal_numbers_that_were_written(dollars: float, rate: int) -> None:
    """A float next to a decimal number does not make it a pico-dollar dearer, and less than one is one."""
    assert pico(dollars) == rate


def test_limits_are_rounded_down() -> None:
    """What a limit does not allow in whole it does not allow."""
    assert (nano(800), nano(0.005), nano(1e-10)) == (800_000_000_000, 5_000_000, 0)


def test_each_kind_of_token_has_its_rate() -> None:
    """Cached, written and reasoning tokens are parts of their side, and are not paid twice."""
    price = Price(rates_of(3000, 15_000, cached=300, written=3750, reasoning=20_000))
    usage = Usage(input_tokens=1000, output_tokens=100, cached_tokens=600, reasoning_tokens=40, written_tokens=300)

    assert cost(price, usage) == (100 * 3000 + 600 * 300 + 300 * 3750 + 60 * 15_000 + 40 * 20_000) // 1000


def test_sound_and_pictures_have_rates_of_their_own() -> None:
    """On either side, as far as they are there; what a cache keeps for an hour costs more than what it keeps for minutes."""
    price = Price(rates_of(1000, 2000, written=1250, kept=2000, audio=(9000, 8000), image=(3000, 4000)))
    usage = Usage(100, 50, written_tokens=30, kept_tokens=20, audio_input=10, image_input=5, audio_output=7, image_output=3)

    read = 10 * 1250 + 20 * 2000 + 10 * 9000 + 5 * 3000 + 55 * 1000
    assert cost(price, usage) == -(-(read + 7 * 8000 + 3 * 4000 + 40 * 2000) // 1000)
    assert bounds(price, 100) == (9000, 8000)
    assert cost(price, Usage(input_tokens=4, audio_input=9)) == 36  # no more than there is


def test_a_service_tier_has_its_price() -> None:
    """That in which the call was served; what the list does not know costs as usual. The bound holds for the one that is asked for too."""
    price = listed(
        input_cost_per_token=2e-9,
        output_cost_per_token=4e-9,
        cache_read_input_token_cost=1e-9,
        input_cost_per_token_priority=4e-9,
        output_cost_per_token_priority=8e-9,
        input_cost_per_token_flex=1e-9,
        output_cost_per_token_batches=1e-9,
        input_cost_per_token_batches=1e-9,
        input_cost_per_token_above_1k_tokens=3e-9,
        input_cost_per_token_above_1k_tokens_priority=6e-9,
    )
    assert price is not None

    def paid(tier: str, tokens: int = 10) -> int:
        return cost(price, Usage(tokens, 10, tier=tier))

    assert [paid(tier) for tier in ("", "default", "priority", "flex", "batch")] == [60, 60, 120, 50, 20]
    assert paid("priority", 2000) == 2000 * 6 + 80
    assert cost(price, Usage(10, 0, 10, tier="priority")) == 10
    assert [bounds(price, 10, tier) for tier in ("", "priority", "flex")] == [(2000, 4000), (4000, 8000), (2000, 4000)]


@pytest.mark.parametrize(
    ("entry", "units"),
    [
        ({"mode": "image_generation", "output_cost_per_image": 0.04}, Units(picture=40_000_000_000)),
        ({"mode": "image_edit", "input_cost_per_image": 0.01}, Units(picture=10_000_000_000)),
        (
            {"mode": "audio_transcription", "input_cost_per_second": 1e-4, "output_cost_per_second": 1e-4},
            Units(second=100_000_000),
        ),
        ({"mode": "audio_speech", "input_cost_per_character": 1.5e-5}, Units(character=15_000_000)),
        ({"mode": "rerank", "input_cost_per_query": 0.002}, Units(call=2_000_000_000)),
        ({"mode": "video_generation", "output_cost_per_video_per_second": 0.1}, Units(second=100_000_000_000)),
        ({"mode": "image_generation", "output_cost_per_image": "free"}, None),
        ({"mode": "chat", "input_cost_per_second": 1e-4}, None),
    ],
)
def test_what_is_not_paid_by_the_token(entry: dict[str, object], units: Units | None) -> None:
    """By the picture, the second, the character or the call; for a chat such a number prices no token."""
    assert listed(**entry) == (None if units is None else Price(rates_of(0, 0), units=units))


def test_pictures_and_seconds_are_not_paid_twice() -> None:
    """Where they were told as tokens. Calls and characters are none."""
    units, amounts = Units(call=1500, picture=2000, second=3000, character=4000), Amounts(pictures=2, seconds=3, characters=5)

    assert unit_cost(units, amounts, told=False) == -(-(1500 + 2 * 2000 + 3 * 3000 + 5 * 4000) // 1000)
    assert unit_cost(units, amounts, told=True) == -(-(1500 + 5 * 4000) // 1000)


@pytest.mark.parametrize(
    ("entry", "rates"),
    [
        ({"mode": "image_generation", "output_cost_per_image_token": 4e-5}, rates_of(1_000_000, 40_000_000, image=(None, 40_000_000))),
        ({"mode": "audio_speech", "output_cost_per_audio_token": 2e-5}, rates_of(1_000_000, 20_000_000, audio=(None, 20_000_000))),
        ({"mode": "embedding"}, rates_of(1_000_000, 0)),
        ({"mode": "chat"}, None),
    ],
)
def test_what_answers_without_words_needs_no_price_for_them(entry: dict[str, object], rates: Rates | None) -> None:
    """A chat does."""
    assert listed(input_cost_per_token=1e-6, **entry) == (None if rates is None else Price(rates))


def test_pictures_have_the_price_of_their_size() -> None:
    """Where the list tells them apart, by quality too; else the model's."""
    listing = {"hd/1024-x-1792/m": Price(rates_of(1, 1)), "1024-x-1024/m": Price(rates_of(2, 2)), "m": Price(rates_of(3, 3))}
    prices = Prices({}, listing)

    asked = [("hd", "1024x1792"), ("", "1024x1792"), ("hd", "1024x1024"), ("", "")]
    found = [prices.sized("m", "", quality, size) for quality, size in asked]
    assert [price and price.rates.input for price in found] == [1, 3, 2, 3]
    assert prices.sized("x", "", "hd", "1x1") is None


def test_what_is_not_stated_costs_what_its_side_does() -> None:
    """So that nothing is free for want of a number."""
    assert rates_of(3, 15) == Rates(3, 15, 3, 3, 3, 15, 3, 15, 3, 15, 3, 15)


def test_searches_of_the_web_are_paid_by_the_piece() -> None:
    """In whatever tier the tokens were served; the list's by the dearest of their sizes."""
    sizes = {"search_context_size_low": 0.005, "search_context_size_medium": 0.008, "search_context_size_high": 0.014}
    entry = {"input_cost_per_token": 1e-6, "output_cost_per_token": 0, "input_cost_per_token_flex": 5e-7}
    listed = read_list(json.dumps({"sonar": entry | {"search_context_cost_per_query": sizes}, "plain": entry}).encode())
    own = stated({"m": PriceConfig(input=1, output=0, search=0.01)})

    assert cost(listed["sonar"], Usage(1_000, searches=2)) == 1_000_000 + 2 * 14_000_000
    assert cost(listed["sonar"], Usage(1_000, searches=2, tier="flex")) == 500_000 + 2 * 14_000_000
    assert cost(listed["plain"], Usage(1_000, searches=2)) == 1_000_000
    assert (cost(own["m"], Usage(searches=3)), search_cost(own["m"], 3)) == (30_000_000, 30_000_000)


def test_a_training_has_a_price_of_its_own() -> None:
    """Where one is stated; else at least that of input."""
    own = stated({"m": PriceConfig(input=1, output=0, training=25), "n": PriceConfig(input=1, output=0)})
    trained = Usage(1_000, trained_tokens=1_000)
    assert [cost(own[model], trained) for model in ("m", "n")] == [25_000_000, 1_000_000]


def test_a_cost_is_rounded_up() -> None:
    """One token at a pico-dollar costs a nano-dollar; none costs nothing."""
    assert cost(CHEAP, Usage(input_tokens=1)) == 1
    assert cost(CHEAP, Usage()) == 0


def test_parts_larger_than_their_side_do_not_make_it_negative() -> None:
    """Providers have been seen to report more cached than read."""
    assert cost(Price(rates_of(1000, 1000)), Usage(input_tokens=5, cached_tokens=9, output_tokens=5, reasoning_tokens=9)) == 18


def test_long_calls_pay_the_rates_of_their_step_for_every_token() -> None:
    """Above the number, not at it."""
    price = Price(rates_of(1000, 2000), ((200, rates_of(5000, 7000)), (500, rates_of(9000, 9000))))

    costs = [cost(price, Usage(input_tokens=tokens, output_tokens=1)) for tokens in (200, 201, 500, 501)]

    assert costs == [202, 1012, 2507, 4518]


@given(
    prices=st.lists(st.tuples(RATE, RATE, RATE, RATE, RATE, RATE), min_size=1, max_size=3),
    parts=st.tuples(TOKENS, TOKENS, TOKENS, TOKENS, TOKENS),
    more=TOKENS,
)
def test_no_call_costs_more_than_its_bound(
    prices: list[tuple[int, int, int, int, int, int]], parts: tuple[int, int, int, int, int], more: int
) -> None:
    """Whatever its tokens turn out to be, and however much shorter than foreseen it was."""
    rates = [rates_of(r[0], r[1], cached=r[2], written=r[3], reasoning=r[4], kept=r[5], audio=(r[3], r[2])) for r in prices]
    price = Price(rates[0], tuple((100_000 * (place + 1), rate) for place, rate in enumerate(rates[1:])))
    plain, cached, written, told, reasoning = parts
    usage = Usage(plain + cached + written, told + reasoning, cached, reasoning, written, more, audio_input=told, audio_output=plain)

    read_rate, told_rate = bounds(price, usage.input_tokens + more)

    exact = Fraction(usage.input_tokens * read_rate + usage.output_tokens * told_rate, 1000)
    assert cost(price, usage) < exact + 1


def test_an_entry_of_the_list() -> None:
    """Every rate in dollars per token; a cache entry of longer life counts for the bound."""
    price = listed(
        input_cost_per_token=3e-06,
        output_cost_per_token=1.5e-05,
        cache_read_input_token_cost=3e-07,
        cache_creation_input_token_cost=3.75e-06,
        cache_creation_input_token_cost_above_1hr=6e-06,
        output_cost_per_reasoning_token=2e-05,
        mode="chat",
    )

    assert price == Price(rates_of(3_000_000, 15_000_000, cached=300_000, written=3_750_000, kept=6_000_000, reasoning=20_000_000))
    assert (price.rates.most_input, price.rates.most_output) == (6_000_000, 20_000_000)


def test_steps_of_the_list() -> None:
    """What a step does not state anew stays as it was."""
    price = listed(
        input_cost_per_token=1e-06,
        output_cost_per_token=2e-06,
        cache_read_input_token_cost=1e-07,
        input_cost_per_token_above_200k_tokens=4e-06,
        input_cost_per_token_above_32k_tokens=2e-06,
        input_cost_per_token_above_200k_tokens_priority=9e-06,
    )

    assert price is not None
    assert [(above, rates.input, rates.output, rates.cached) for above, rates in price.steps] == [
        (32_000, 2_000_000, 2_000_000, 100_000),
        (200_000, 4_000_000, 2_000_000, 100_000),
    ]


def test_tiers_of_the_list() -> None:
    """The same, as some entries write it."""
    price = listed(
        tiered_pricing=[
            {"range": [256000.0, 1e6], "input_cost_per_token": 3e-06, "output_cost_per_token": 4e-06},
            {"range": [0, 256000.0], "input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06},
            {"range": [1e6], "input_cost_per_token": 5e-06},
            {"input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06},
            "none",
        ]
    )

    assert price == Price(rates_of(1_000_000, 2_000_000), ((256_000, rates_of(3_000_000, 4_000_000)),))


@pytest.mark.parametrize(
    "entry",
    [
        {},
        {"input_cost_per_token": 1e-06},
        {"output_cost_per_image": 0.04},
        {"input_cost_per_token": "free", "output_cost_per_token": 0},
        {"input_cost_per_token": -1, "output_cost_per_token": 0},
        {"input_cost_per_token": 1.0, "output_cost_per_token": 0},
        {"tiered_pricing": "dear"},
        {"tiered_pricing": []},
    ],
)
def test_an_entry_without_a_price_per_token_has_none(entry: dict[str, object]) -> None:
    """No price is not a price of zero."""
    assert listed(**entry) is None


def test_zero_is_a_price() -> None:
    """Of a model that runs on a machine of one's own, for instance."""
    free = listed(input_cost_per_token=0, output_cost_per_token=0.0)

    assert free is not None
    assert cost(free, Usage(input_tokens=10**6)) == 0


def test_the_example_of_the_list_is_no_model() -> None:
    """litellm's list explains itself in an entry."""
    assert read_list(b'{"sample_spec": {"input_cost_per_token": 0.0, "output_cost_per_token": 0.0}}') == {}


@pytest.mark.parametrize("data", [b"", b"[]", b'{"a": 1}', b"\xff"])
def test_what_is_no_list(data: bytes) -> None:
    """It is said, not taken for an empty one."""
    with pytest.raises(ValueError, match="not a price list"):
        read_list(data)


@pytest.mark.parametrize(
    ("model", "upstream", "expected"),
    [
        ("gpt-5", "", CHEAP),
        ("gpt-5", "azure", DEAR),
        ("gpt-5", "default", CHEAP),
        ("gpt-6", "azure", None),
        ("azure/gpt-5", "", DEAR),
    ],
)
def test_listed_prices_by_upstream_and_name(model: str, upstream: str, expected: Price | None) -> None:
    """An upstream called as the list calls a provider has that provider's prices."""
    assert Prices({}, {"gpt-5": CHEAP, "azure/gpt-5": DEAR}).of(model, upstream) == expected


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({"gpt-*": CHEAP}, CHEAP),
        ({"*": DEAR, "gpt-5": CHEAP}, CHEAP),
        ({"lab/*": DEAR, "gpt-5": CHEAP}, CHEAP),
        ({"gpt-*": CHEAP, "lab/gpt-5": DEAR}, DEAR),
        ({"lab/*": DEAR}, DEAR),
        ({"claude-*": CHEAP}, Price(rates_of(7, 7))),
    ],
)
def test_own_prices_go_before_listed_ones(own: dict[str, Price], expected: Price) -> None:
    """Names before globs; with the upstream's name or without."""
    assert Prices(own, {"gpt-5": Price(rates_of(7, 7))}).of("gpt-5", "lab") == expected


def test_prices_are_remembered_for_a_bounded_number_of_names() -> None:
    """Clients name models: neither many names nor long ones fill the memory."""
    prices = Prices({"m*": CHEAP}, {})

    assert {prices.of(f"m{number}") for number in range(3000)} == {CHEAP}
    assert prices.of("m" * 300) is None
    assert 1000 < len(prices._known) <= 1024
    assert prices.of("m2999") is CHEAP


def test_whether_there_are_prices_at_all() -> None:
    """Without any, a budget in money could not be kept."""
    assert not Prices({}, {})
    assert Prices({"*": CHEAP}, {})
    assert Prices({}, {"a": CHEAP})


def test_stated_prices_are_for_a_million_tokens_or_for_one() -> None:
    """The same price either way, down to the pico-dollar."""
    million = PriceConfig(input=1.25, output=10, cached=0.125, cache_write=1.5, reasoning=12)
    token = PriceConfig(per="token", input=1.25e-6, output=1e-5, cached=1.25e-7, cache_write=1.5e-6, reasoning=1.2e-5)

    prices = stated({"a": million, "b": token, "c": PriceConfig(input=0, output=0)})

    rates = rates_of(1_250_000, 10_000_000, cached=125_000, written=1_500_000, reasoning=12_000_000)
    assert prices["a"] == prices["b"] == Price(rates)
    by_piece = stated({"d": PriceConfig(input=0, output=0, cache_write_1h=2, image=0.04, second=0.0001)})["d"]
    assert by_piece == Price(rates_of(0, 0, kept=2_000_000), units=Units(picture=40_000_000_000, second=100_000_000))
    assert prices["c"] == Price(rates_of(0, 0))
