"""Releases that are yet to come: copies of the package whose records of sessions are others, to be run beside this one on one store."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import proxy
from tests.running import Process, process

_SECOND_FORM = """

def _read_second(data: bytes) -> Record:
    version, key, rest = msgspec.msgpack.decode(data)
    names = Record.__struct_fields__[2:]
    return msgspec.convert([version, key, *[rest[name] for name in names]], Record)


def _write_second(record: Record, _: Parts | None) -> bytes:
    names = Record.__struct_fields__[2:]
    return msgspec.msgpack.encode([record.version, record.key, {name: getattr(record, name) for name in names}])


_SECOND = Form(2, _read_second, _write_second)
"""
_FORMS = "_FORMS = (Form(VERSION, _read, _written),)\n"


def _appends(source: str) -> str:
    """Keeps the version, and has each lane, and each call of one, count how often a replica of this release wrote it."""
    source = _put(source, "MINOR = 0", "MINOR = 1")
    for following in ("class Given(", "Calls = "):  # what stands behind `Lane` and `KeptCall`
        source = _put(source, f"\n\n\n{following}", f"\n    written: int = 0\n\n\n{following}")
    counts = "\n    for lane in record.lanes:\n        lane.written += 1\n        for at, calls in enumerate(lane.kept):\n"
    counts += "            lane.kept[at] = tuple([msgspec.structs.replace(one, written=one.written + 1) for one in calls])\n"
    return _put(source, "    _bound(record)\n    data", f"    _bound(record){counts}    data")


def _reads_both(source: str) -> str:
    """The first of the two releases that a new version takes."""
    return _put(source, _FORMS, f"{_SECOND_FORM}\n_FORMS = (Form(VERSION, _read, _written), _SECOND)\n")


def _begins_the_second(source: str) -> str:
    """The second of them."""
    return _put(source, _FORMS, f"{_SECOND_FORM}\n_FORMS = (_SECOND, Form(VERSION, _read, _written))\n")


RELEASES: Mapping[str, Callable[[str], str]] = {
    "this": lambda source: source,
    "appends": _appends,
    "reads both": _reads_both,
    "begins the second": _begins_the_second,
}


@dataclass
class Releases:
    """Replicas of one store, by the name of their release."""

    running: dict[str, Process] = field(default_factory=dict)

    def v1(self, name: str) -> str:
        return self.running[name].v1


@contextmanager
def releases(folder: Path, upstream: str, store: str, names: tuple[str, ...]) -> Iterator[Releases]:
    """A replica of each of these releases. folder: for the copies."""
    assert proxy.__file__ is not None
    package, found = Path(proxy.__file__).parent, Releases()
    with ExitStack() as stack:
        for number, name in enumerate(names):
            place = folder / str(number)
            shutil.copytree(package, place / "proxy", ignore=shutil.ignore_patterns("__pycache__"))
            state = place / "proxy" / "state.py"
            state.write_text(RELEASES[name](state.read_text()))
            served = process(upstream, "--store", store, environ={"PYTHONPATH": str(place)})
            found.running[name] = stack.enter_context(served)
        yield found


def _put(source: str, before: str, after: str) -> str:
    assert before in source, f"state.py has no {before!r} any more"
    return source.replace(before, after, 1)
