"""A model that has collapsed: a scripted endpoint to try an agent against, without a key or a network.

It keeps no state. What it answers follows from the request alone, so that a retry gets the same answer (under a new id) and any
number of clients can use it at once. Unless a script says otherwise it asks for the same call for as long as tools are offered.
"""

from proxy.mock.endpoint import BYTES_PER_TOKEN, Served, build, serve
from proxy.mock.script import Call, Script, Step, parse_script

__all__ = ["BYTES_PER_TOKEN", "Call", "Script", "Served", "Step", "build", "parse_script", "serve"]
