"""The families of tool markup that models leak into their text: how each begins, and where it ends.

A sign is strong when it holds the text of a special token, which people do not type. An ordinary-looking tag needs what only a call has
after it, and mostly the start of a line; a client's own words for a call need that the tool be one that is known. Forms and
reports: the parsers of vLLM, SGLang, xgrammar, mlx-lm and ollama, and what their users and those of twenty agents saw leak.
"""

from dataclasses import dataclass
from enum import Enum, auto

from proxy.markup.shapes import OneOf, Piece, Run


class Names(Enum):
    """What a sign's tool name must be: anything; a known tool where tools are known; a known tool."""

    ANY = auto()
    PLAUSIBLE = auto()
    KNOWN = auto()


@dataclass(frozen=True, slots=True)
class Sign:
    """How markup begins. enough: so many pieces suffice where the text ends after them. line: only at the start of a line.

    call: what it begins is a call or a made-up result, not only a model's thinking in a wrong place.
    """

    pieces: tuple[Piece, ...]
    enough: int | None = None
    line: bool = False
    names: Names = Names.ANY
    call: bool = True


@dataclass(frozen=True, slots=True)
class Family:
    """end: a pattern of what closes it; without one it goes to the end of the text. inner: a pattern of what, after such a closer, goes on
    with it."""

    name: str
    signs: tuple[Sign, ...]
    end: str | None = None
    inner: str = "(?!)"


_SPACE = Run(r"\ \t\r\n", 0, 16)
_BREAK = (Run(r"\ \t\r", 0, 4), "\n", _SPACE)
_NAME = Run(r"\w.:-", 1, 64, name=True)
_BARS = ("\uff5c", "\u2016", "|", "\uff5c\uff5c", "\u2016\u2016", "||")
_BAR = OneOf(_BARS)
_THICK = OneOf(("\uff5c", "\u2016"))
_THIN = OneOf(("\uff5c", "|"))
_LOW = OneOf(("\u2581", "_"))
_OPEN = ("<tool_call>", _SPACE)
_OWN = "antml:"  # the namespace of Claude's own tags, lost in most leaks
_STRAY_WORD = OneOf(("court\n", "count\n", "call\n", "court\n\n", "count\n\n", "call\n\n"))
_TAG = r"(?:invoke|parameter|function_calls|tool_calls?)\b"


def _strong(*tokens: str) -> tuple[Sign, ...]:
    return tuple(Sign((token,)) for token in tokens)


def _weak(*pieces: Piece, names: Names = Names.PLAUSIBLE) -> Sign:
    return Sign(pieces, line=True, names=names)


_DSML = Family(
    "dsml",
    (
        Sign(("<", _BAR, "DSML", OneOf(("\uff5c", "\u2016", "|")))),
        Sign((_THICK, "DSML", _THICK)),
        Sign(("|DSML|", OneOf(("tool_calls", "function_calls", "invoke", "parameter")))),
    ),
    end=r"</[|\uff5c\u2016]{1,2}DSML[|\uff5c\u2016]{1,2}\w{0,32}>",
    inner=r"</?[|\uff5c\u2016]{1,2}DSML",
)
_DEEPSEEK = Family(
    "deepseek",
    (
        Sign(("<", _THIN, "tool", _LOW, OneOf(("call", "calls", "output", "outputs")), _LOW, "begin", _THIN, ">")),
        Sign(("<", _THIN, "tool", _LOW, "sep", _THIN, ">")),
    ),
    end=r"<[|\uff5c]tool[\u2581_](?:calls?|outputs?)[\u2581_]end[|\uff5c]>",
    inner=r"<[|\uff5c]tool[\u2581_]",
)
_KIMI = Family(
    "kimi",
    _strong("<|tool_calls_section_begin|>", "<|tool_call_section_begin|>", "<|tool_call_argument_begin|>"),
    end=r"<\|tool_calls?(?:_section)?_end\|>",
    inner=r"<\|tool_call",
)
_KIMI_3 = Family(
    "kimi-k3",
    (
        Sign(("<|open|>", OneOf(("tools", "call", "argument")))),
        Sign(("<|open|>think",), call=False),
    ),
    end=r"<\|close\|>(?:tools|call|argument|think)<\|sep\|>",
    inner=r"<\|(?:open\|>(?:tools|call|argument)|close\|>(?:tools|call|argument))",
)
_MINIMAX = Family(
    "minimax",
    _strong("<minimax:tool_call>"),
    end=rf"</(?:minimax:)?{_TAG}[^>\n]{{0,80}}>",
    inner=rf"</?(?:minimax:)?{_TAG}",
)
_MINIMAX_3 = Family(
    "minimax-m3",
    (Sign(("]<]minimax[>[<", Run("a-zA-Z_", 1, 1))),),
    end=r"\]<\]minimax\[>\[</\w{1,64}>",
    inner=r"\]<\]minimax\[>\[",
)
_HERMES = Family(
    "hermes",
    (
        Sign((*_OPEN, "{"), enough=2, line=True),
        Sign(("<tool_call>", *_BREAK, OneOf(("{", "[")))),
        Sign((*_OPEN, "<function=")),
        Sign((*_OPEN, _NAME, _SPACE, "<arg_key>", Run(r"^<\n", 1, 64), "</arg_key>", _SPACE, "<arg_value>"), enough=6),
        Sign((*_OPEN, _NAME, OneOf(("(", "</tool_call>", "\n</tool_call>"))), line=True, names=Names.PLAUSIBLE),
        Sign(("<arg_key>", Run(r"^<\n", 1, 64), "</arg_key>", _SPACE, "<arg_value>"), enough=3),
        Sign(("<function=", _NAME, ">", _SPACE, OneOf(("<parameter=", "{", "</function>"))), enough=3),
    ),
    end=r"</(?:tool_call|function|parameter|arg_key|arg_value)>",
    inner=r"<(?:/?(?:tool_call|arg_key|arg_value)>|/?(?:function|parameter)[=>])",
)
_ATTRIBUTES = Family("hermes", (Sign(("<tool_call", Run(r"\ ", 1, 2), "name="), line=True),), end=r"/>|</tool_call>", inner="<tool_call ")
_CLAUDE = Family(
    "claude",
    (
        Sign((_STRAY_WORD, OneOf(("<invoke name=", "<function_calls>"))), line=True),
        Sign(('<invoke name="', _NAME, '">', _SPACE, OneOf(("<parameter name=", "</invoke>"))), enough=3, line=True, names=Names.PLAUSIBLE),
        *_strong(f"<{_OWN}invoke name=", f"<{_OWN}function_calls>", "<atem:function_calls>", "<atem:invoke name=", "<atem:parameter name="),
        Sign(("<function_calls>", _SPACE, "<"), enough=2, line=True),
        Sign(("<function_calls>", _SPACE, Run(r"\w.-", 1, 64, name=True), "("), line=True, names=Names.PLAUSIBLE),
        Sign(("<tool_calls>", _SPACE, OneOf(("[", "{", "<"))), line=True),
    ),
    end=rf"</(?:{_OWN}|atem:)?{_TAG}[^>\n]{{0,80}}>",
    inner=rf"</?(?:{_OWN}|atem:)?{_TAG}",
)
_HARMONY = Family(
    "harmony",
    (
        Sign(("<|channel|>", OneOf(("commentary", "analysis", "final")), Run(r"\ ", 0, 2), "to=")),
        Sign(("<|channel|>commentary", Run(r"\ ", 0, 2), "<|constrain|>")),
        Sign(("<|channel|>analysis",), call=False),
        Sign(("to=functions.", _NAME, Run(r"\ ", 0, 2), "<|channel|>"), line=True),
    ),
    end=r"<\|(?:end|call|return)\|>|(?=<\|start\|>|<\|channel\|>(?:final|commentary<))",
)
_LLAMA = Family("llama", _strong("<|python_tag|>", "<|python_start|>"), end=r"<\|(?:eom_id|eot_id|eot|python_end)\|>")
_MISTRAL = Family(
    "mistral",
    (
        Sign((OneOf(("[TOOL_CALLS]", "[TOOL_CALL]", "[TOOL_RESULTS]", "[AVAILABLE_TOOLS]")), _SPACE, OneOf(("[", "")), _SPACE, "{")),
        Sign(("[TOOL_CALLS]", _SPACE, _NAME, OneOf(("[ARGS]", "[CALL_ID]", "{")))),
        Sign((OneOf(("[ARGS]", "[CALL_ID]")), _SPACE, "{")),
    ),
    end=r"\[/(?:TOOL_CALLS?|TOOL_RESULTS|AVAILABLE_TOOLS)\]",
)
_GEMMA = Family(
    "gemma",
    (
        *_strong("<|tool_call>", "<|tool_response>", '<|"|>'),
        Sign(("<|channel>",), call=False),
        Sign(("call:", Run(r"\w.-", 1, 64, name=True), "{"), line=True, names=Names.KNOWN),
    ),
    end=r"<(?:tool_call|tool_response|channel)\|>",
)
_FUNCTION_GEMMA = Family(
    "functiongemma",
    _strong("<start_function_call>", "<start_function_response>", "<escape>"),
    end=r"<end_function_(?:call|response)>",
)
_BRACKETED = Family(
    "lfm2",
    _strong("<|tool_call_start|>", "<|tool_call_begin|>", "<|tool_call|>"),
    end=r"<\|tool_call_end\|>|<\|tool_calls_section_end\|>",
    inner=r"<\|tool_call",
)
_LONGCAT = Family(
    "longcat",
    _strong("<longcat_tool_call>", "<longcat_arg_key>", "<longcat_arg_value>"),
    end=r"</longcat_(?:tool_call|arg_key|arg_value)>",
    inner=r"</?longcat_",
)
_SEED = Family(
    "seed",
    (*_strong("<seed:tool_call>"), Sign(("<seed:think>",), call=False)),
    end=r"</(?:seed:(?:tool_call|think)|function|parameter)>",
    inner=r"<(?:/?seed:tool_call|/?(?:function|parameter)[=>])",
)
_COHERE = Family(
    "cohere",
    (*_strong("<|START_ACTION|>"), Sign(("<cofl:tool_call", OneOf((">", "s>", " ")))), Sign(("<|START_THINKING|>",), call=False)),
    end=r"<\|END_(?:ACTION|THINKING)\|>|</cofl:tool_calls?>",
    inner=r"</?cofl:",
)
_OTHERS = Family(
    "others",
    (
        *_strong("<|action_start|>"),
        Sign(("<TOOLCALL>", _SPACE, OneOf(("[", "{")))),
        Sign(("functools[", _SPACE, "{"), line=True),
    ),
    end=r"</TOOLCALL>|<\|action_end\|>",
)
_GEMINI = Family(
    "gemini",
    (
        _weak("declaration:default_api:", _NAME, "{", names=Names.ANY),
        _weak("```tool_code", Run(r"\ \r", 0, 4), "\n", _SPACE, OneOf(("print(", "default_api.")), names=Names.ANY),
    ),
    end=r"\n```",
)
_AGENTS = Family(
    "agents",
    (
        _weak("[Tool Call: ", _NAME, OneOf(("]", " ("))),
        _weak(OneOf(("[Calling tool: ", "[Calling tool ")), _NAME, OneOf(("]", "(", " (", " with "))),
        _weak("[Tool Result for ID ", Run(r"\w.:-", 1, 80), "]"),
        _weak("[tool output: "),
        _weak("functions.", Run(r"\w-", 1, 64, name=True), "(", _SPACE, OneOf(("{", '"', ")"))),
        _weak("<tool>", _SPACE, _NAME, _SPACE, "</tool>", names=Names.KNOWN),
        _weak(
            '{"name"',
            Run(r"\ ", 0, 1),
            ":",
            Run(r"\ ", 0, 1),
            '"',
            _NAME,
            '",',
            _SPACE,
            OneOf(('"parameters"', '"arguments"')),
            names=Names.KNOWN,
        ),
    ),
)

FAMILIES = (
    _DSML, _DEEPSEEK, _KIMI, _KIMI_3, _MINIMAX, _MINIMAX_3, _HERMES, _ATTRIBUTES, _CLAUDE, _HARMONY, _LLAMA, _MISTRAL, _GEMMA,
    _FUNCTION_GEMMA, _BRACKETED, _LONGCAT, _SEED, _COHERE, _OTHERS, _GEMINI, _AGENTS,
)  # fmt: skip

# Tokens that frame an answer, or end markup that never began: they go, the text around them stays.
FRAMES = (
    *("<|start|>assistant", "<|channel|>final", "<|channel|>commentary<|message|>", "<|message|>", "<|constrain|>json"),
    *("<|end|>", "<|call|>", "<|return|>"),
    *(f"<|{word}|>{part}<|sep|>" for word in ("open", "close") for part in ("response", "message")),
    *(f"<|close|>{part}<|sep|>" for part in ("tools", "call", "argument", "think")),
    *("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|END_THINKING|>", "<|END_ACTION|>", "<channel|>", "<tool_call|>", "<tool_response|>"),
    *(f"</{bar}DSML{bar}{word}>" for bar in _BARS for word in ("tool_calls", "function_calls", "invoke", "parameter")),
    *(f"<{bar}tool{low}{word}{low}end{bar}>" for bar in "\uff5c|" for low in "\u2581_" for word in ("call", "calls", "output", "outputs")),
    *("<|tool_calls_section_end|>", "<|tool_call_section_end|>", "<|tool_call_end|>", "<end_function_call>", "<end_function_response>"),
    *("</minimax:tool_call>", "]<]minimax[>[</tool_call>", "</seed:tool_call>", "</seed:think>", "</longcat_tool_call>"),
)

# Closers and ends of turn: cut where the text ends with them, and nowhere else.
STRAYS = (
    *("</tool_call>", "</tool_calls>", "</function_calls>", "</think>", "</thinking>", "]<]minimax[>["),
    *("<eos>", "<|im_end|>", "<|eom_id|>", "<|eot_id|>", "<|endoftext|>", "<|end_of_text|>", "<\uff5cend\u2581of\u2581sentence\uff5c>"),
)
