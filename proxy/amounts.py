"""Numbers of things, in words for people."""


def counted(number: int, thing: str) -> str:
    """`1 call`, `1,200 calls`. thing: one of them, in a word that takes an s."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def times(number: int) -> str:
    """`once`, `5 times`."""
    return "once" if number == 1 else f"{number:,} times"
