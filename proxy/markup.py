"""Tool-call markup that a model wrote into its text: recognised by the special tokens of the families that leak it.

Only strong signs, read outside code fences, inline code and quotes: special-token text that people do not type, or a tag followed by
what only a call has. A sign at the start of a line counts even if the markup itself holds a fence (DeepSeek V3 does).
"""

import re

_BAR = r"[|\uff5c\u2016]{1,2}"
_SIGNS = re.compile(
    rf"""
      <{_BAR}DSML{_BAR} | {_BAR}DSML{_BAR}(?:tool_calls|function_calls|invoke|parameter)
    | <[|\uff5c]tool[\u2581_]calls?[\u2581_](?:begin|end)[|\uff5c]>
    | <[|\uff5c]tool[\u2581_](?:sep|outputs?[\u2581_](?:begin|end))[|\uff5c]>
    | <\|tool_calls?(?:_section)?_(?:begin|end|argument_begin)\|> | <\|tool_call_argument_begin\|>
    | <\|(?:open|close)\|>(?:tools|call|argument|message|response)\b
    | <\|channel\|>(?:commentary|analysis)?[^\n]{{0,80}}?to=functions\.
    | <tool_call>(?:\s*(?:\{{|<function=|<arg_key>)|\n?[\w.-]+\s*(?:<arg_key>|</tool_call>))
    | <function=[\w.-]+>\s*(?:<parameter=|\{{|</function>)
    | <arg_key>[^<\n]{{1,200}}</arg_key>
    | <(?:antml:)?invoke\ name="[\w.:-]{{1,200}}">
    | \[TOOL_CALLS\]\s*(?:\[|[\w.-]+(?:\[ARGS\]|\{{))
    | <\|python_tag\|> | <tool_calls>\s*[\[<] | <function_calls>\s*(?:<|[\w.-]+\()
    | <\|tool_call> | <tool_call\|> | <start_function_call> | <longcat_tool_call> | <seed:tool_call>
    | <\|START_ACTION\|> | <cofl:tool_calls?[>\ ] | <(?:antml|atem):function_calls> | <atem:invoke\ name=
    """,
    re.VERBOSE,
)
_CODE = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)|`[^`\n]{1,2000}`|^[ ]{0,3}>[^\n]*|<!--.*?(?:-->|\Z)", re.DOTALL | re.MULTILINE)


def leaked(text: str) -> bool:
    """Whether the text holds a tool call written as markup, outside code and quotes."""
    first = _SIGNS.search(text)
    if first is None:
        return False
    masked = _CODE.sub(lambda part: " " * len(part.group()), text)
    return _SIGNS.search(masked) is not None
