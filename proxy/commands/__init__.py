"""Shell command lines: may one change something, does it wait, does it search, which program is it about?"""

from proxy.commands.line import Line, read_line
from proxy.commands.sql import sql_reads

__all__ = ["Line", "read_line", "sql_reads"]
