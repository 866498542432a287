"""Tool calls that a model wrote into its text: recognised, and not seen where people only write about them."""

import pytest

from proxy.markup import leaked

FAMILIES = {
    "dsml": '<\uff5cDSML\uff5ctool_calls>\n<\uff5cDSML\uff5cinvoke name="Bash">',
    "dsml old": '<\uff5cDSML\uff5cfunction_calls>\n<\uff5cDSML\uff5cinvoke name="x">',
    "dsml double bar": "<\u2016DSML\u2016tool_calls>",
    "dsml without its opener": 'so \uff5cDSML\uff5cinvoke name="x">',
    "deepseek": "<\uff5ctool\u2581calls\u2581begin\uff5c><\uff5ctool\u2581call\u2581begin\uff5c>function<\uff5ctool\u2581sep\uff5c>x",
    "deepseek results": "<\uff5ctool\u2581outputs\u2581begin\uff5c>",
    "deepseek ascii": "<|tool_calls_begin|>",
    "hermes": '<tool_call>\n{"name": "read"}\n</tool_call>',
    "qwen coder": "<tool_call>\n<function=read>\n<parameter=path>",
    "qwen coder bare": "<function=read>\n<parameter=path>\nx",
    "glm": "<tool_call>read\n<arg_key>path</arg_key>",
    "glm without arguments": "<tool_call>list_files</tool_call>",
    "kimi": '<|tool_calls_section_begin|><|tool_call_begin|>functions.x:0<|tool_call_argument_begin|>{"a":1}',
    "kimi new": "<|open|>tools",
    "claude": '<invoke name="Bash">\n<parameter name="command">ls</parameter>',
    "claude prefixed": '<invoke name="Bash">',
    "claude list": '<function_calls>\n<invoke name="Bash">',
    "harmony": '<|channel|>commentary to=functions.read <|constrain|>json<|message|>{"a":1}',
    "llama": "<|python_tag|>read.call()",
    "mistral": '[TOOL_CALLS] [{"name": "x"}]',
    "mistral new": '[TOOL_CALLS]read[ARGS]{"a":1}',
    "gemma": '<|tool_call>call:bash{command:<|"|>ls<|"|>}<tool_call|>',
    "function gemma": "<start_function_call>call:get{city:<escape>x<escape>}<end_function_call>",
    "longcat": "<longcat_tool_call>get<longcat_arg_key>city</longcat_arg_key>",
    "seed": "<seed:tool_call><function=x>",
    "cohere": '<|START_ACTION|>[{"tool_name": "x"}]<|END_ACTION|>',
    "cohere new": '<cofl:tool_call id="1">',
    "olmo": '<function_calls>\nget_weather(city="Paris")\n</function_calls>',
    "atem": '<atem:function_calls><atem:invoke name="x">',
    "lists": "<tool_calls>[",
}


@pytest.mark.parametrize("text", FAMILIES.values(), ids=FAMILIES)
def test_markup_is_seen(text: str) -> None:
    """Alone, after text, and at the start of a line."""
    assert leaked(text)
    assert leaked(f"I will look into it.\n\n{text}")


@pytest.mark.parametrize("text", FAMILIES.values(), ids=FAMILIES)
@pytest.mark.parametrize("quote", ["```\n{}\n```", "~~~xml\n{}\n~~~", "```\n{}", "<!-- {} -->"])
def test_markup_that_is_shown_is_not_meant(text: str, quote: str) -> None:
    """In a code fence, closed or not, and in a comment, it is an example."""
    assert not leaked(f"The format is\n{quote.format(text)}")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "All done.",
        "The marker `[TOOL_CALLS] [` comes before the JSON.",
        "He wrote:\n> <|python_tag|>print(1)\nWhat does it mean?",
        "Use <tool_callable> for this class.",
        "Wrap it in <tool_call> and </tool_call>.",
        'if size < 500 and name="x": run()',
        '[server]\n{"port": 80}\n[/server]',
        '<function name="init"><parameter name="x">1</parameter></function>',
        '{"name": "Anna", "parameters": {"age": 3}}',
        "invoke name, tool_calls, function=x",
    ],
)
def test_what_people_write_is_left_alone(text: str) -> None:
    """Weak signs are no signs."""
    assert not leaked(text)


def test_a_fence_inside_markup_hides_nothing() -> None:
    """The opener stands outside it."""
    assert leaked("<\uff5ctool\u2581call\u2581begin\uff5c>function\n```json\n{}\n```")


def test_markup_after_an_example_is_seen() -> None:
    """Only what stands in the fence is an example."""
    assert leaked('```\n<tool_call>{"a":1}\n```\n<tool_call>{"name": "read"}')


@pytest.mark.parametrize("piece", ["<tool_call> ", "[TOOL_CALLS]a", "```", "<!--", "`x", "<|channel|>commentary ", "<arg_key>x", ">\n"])
def test_hostile_text_is_read_to_its_end(piece: str) -> None:
    """Openers without end cost no more than their length: this would not return in time if they did."""
    assert not leaked(piece * (300_000 // len(piece)))
