"""What Lastcall would have done on recorded work: files in, one row a recording out.

`formats` reads what others recorded into `Recording`s, `walk` leads one through the engine as the proxy would have met it, turn by
turn, `report` says what came of it, `command` does all of this for the command line. No rule about loops stands here.
"""

from proxy.replay.command import run

__all__ = ["run"]
