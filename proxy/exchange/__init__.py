"""One exchange, in the order of the data flow. Awaits; decides nothing.

`flow` reads as the list of steps; `course` is what an exchange has come to so far; `closing` gives the answers that Lastcall gives;
`reply` is the way back to the client; `setting` what all exchanges of a process share.
"""

from proxy.exchange.flow import Exchange
from proxy.exchange.setting import Setting, Way

__all__ = ["Exchange", "Setting", "Way"]
