"""Patterns of agents' work that look like loops and are none, by where they come from; and of collapses, in `stuck`."""

from tests.work import code, lists, screens, services, waits

WORK = {**screens.WORK, **services.WORK, **code.WORK, **lists.WORK, **waits.WORK}
