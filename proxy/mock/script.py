"""What the scripted model does: steps and options, as a script file has them."""

from typing import Annotated, Any

import msgspec

from proxy.errors import ConfigError


class Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call to ask for. None: a harmless-looking tool, arguments from its schema. A string as arguments is sent as it stands."""

    name: str | None = None
    arguments: dict[str, Any] | str | None = None


class Step(Call, frozen=True, forbid_unknown_fields=True):
    """One answer: an error status, else text, else several calls at once, else one call."""

    text: str | None = None
    calls: tuple[Call, ...] = ()
    status: Annotated[int, msgspec.Meta(ge=400, le=599)] | None = None


Steps = Annotated[tuple[Step, ...], msgspec.Meta(min_length=1)]


class Script(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the model does. The answer to a history of n assistant messages is step n; the last step repeats.

    ignores_none: asks for calls although `tool_choice` is `none`. heeds_nudge: answers with text once the request holds a nudge.
    """

    steps: Steps = (Step(),)
    ignores_none: bool = False
    heeds_nudge: bool = False


def parse_script(text: str) -> Script:
    """Reads a script file: a JSON list of steps, or an object with `steps` and the options of `Script`. Raises `ConfigError`."""
    try:
        script: Script | Steps = msgspec.json.decode(text, type=Script | Steps)
    except msgspec.DecodeError as error:
        raise ConfigError(f"the script cannot be used: {error}; see docs/mock.md") from error
    return script if isinstance(script, Script) else Script(script)
