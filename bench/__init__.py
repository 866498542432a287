"""What a request costs in Lastcall, side by side with a bare passthrough and with peers, on one machine in one run.

`load` sends the `transcripts` of coding agents through each of the `servers` to one fixed `upstream`; `measure` says what that took,
`report` prints it; `memory` weighs idle sessions, `engine` times the pure core alone. docs/benchmarks.md explains how to read it.
`accuracy` is about the other question, how often the detectors are right: docs/accuracy.md.
"""
