"""Lastcall: an OpenAI-compatible proxy that breaks agent loops.

Read the modules in the order of one exchange: `exchange` (the list of steps), `identity` (whose session), `trail` and `fingerprint`
(what was called, what came back), `detectors` (is that a loop), `engine` (what to do about it), `dialects` (how it is said on the
wire), `store` (what outlives the request), `telemetry` (what happened). Imports point down; `pyproject.toml` has the table.
"""

__version__ = "0.1.0"
