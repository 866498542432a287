"""Made-up work and made-up collapses of agents, as recordings for the engine to walk through.

Work comes in episodes of what agents do all day, put together at random up to any length; in none of them is the agent stuck. A collapse is
one thing done over and over, in which something drifts that has no meaning: ids, times, counters, key order, the spelling of numbers,
labels, arguments that change nothing.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from random import Random
from typing import Any

from proxy.models import Item, Role, ToolCall
from proxy.replay.recording import Recording

Step = tuple[str, Any, str]  # tool, arguments (an object, or raw text), result
Message = Sequence[Step]  # the calls of one assistant message
TOOLS = (
    *("bash", "read_file", "edit_file", "write_file", "grep", "list_dir", "todo_write", "web_search", "web_fetch", "send_message"),
    *("job_status", "create_record", "browser_click", "think", "process"),
)
_WORDS = tuple(f"{first}{second}" for first in ("red", "green", "blue") for second in ("fox", "owl", "elk", "bee", "cod", "yak"))


def recording(id: str, messages: Sequence[Message], *, texts: Sequence[int] = ()) -> Recording:
    """A run of these messages. texts: before which of them a person says something new."""
    ids = count()
    items = [Item(Role.SYSTEM, b'"You are an agent."'), Item(Role.USER, b'"Do the task."')]
    for number, message in enumerate(messages):
        if number in texts:
            items += [Item(Role.ASSISTANT, b'"Done so far."'), Item(Role.USER, json.dumps(f"Now do part {number}.").encode())]
        made = [(f"call_{next(ids)}", *step) for step in message]
        calls = tuple(ToolCall(id, name, given if isinstance(given, str) else json.dumps(given)) for id, name, given, _ in made)
        items.append(Item(Role.ASSISTANT, b"null", calls))
        items += [Item(Role.TOOL, json.dumps(result).encode(), call_id=id) for id, _, _, result in made]
    return Recording(id, tuple(items), tools=TOOLS)


class Worker:
    """An agent at work on a small made-up project. Every episode ends in a state from which any other may follow."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._fresh = count(1)
        self._text: dict[str, int] = {f"src/{word}.py": next(self._fresh) for word in _WORDS}
        self.episodes: list[Callable[[], list[Message]]] = [
            *(self.edit_and_test, self.build_gate, self.read_around, self.search_around, self.page, self.poll, self.wait, self.batch_edit),
            *(self.batch_commands, self.batch_records, self.read_again, self.stumble, self.triage, self.tick_off, self.tell_many),
            *(self.research, self.commit, self.think, self.verify, self.click_through),
        ]

    def work(self, calls: int) -> list[Message]:
        """Messages with about so many calls."""
        messages: list[Message] = []
        while sum(map(len, messages)) < calls:
            messages += self._random.choice(self.episodes)()
        return messages

    def _number(self) -> int:
        return next(self._fresh)

    def _file(self) -> str:
        return self._random.choice(list(self._text))

    def _seconds(self) -> str:
        return f"{self._random.random() * 9:.2f}s"

    def _read(self, path: str) -> Step:
        body = "\n".join(f"{number}: value_{self._text[path]}_{number}" for number in range(self._random.randint(12, 13)))
        return ("read_file", {"path": path}, f"# {path}\n{body}")

    def _edit(self, path: str) -> Step:
        old, new = self._text[path], self._number()
        self._text[path] = new
        return ("edit_file", {"path": path, "old_string": f"value_{old}", "new_string": f"value_{new}"}, "The file has been updated.")

    def _parallel(self, steps: Sequence[Step]) -> list[Message]:
        """In one message, or one after the other."""
        return [list(steps)] if self._random.random() < 0.4 else [[step] for step in steps]

    # ---- episodes

    def edit_and_test(self) -> list[Message]:
        """The same failure after each edit, for as long as it takes."""
        test = self._random.choice(["pytest -q", "cargo test", "npm test", "go test ./...", "make test", "python -m pytest tests/unit"])
        failure = f"FAILED tests/test_a.py::test_x - assert {self._number()} == 4\n1 failed, 11 passed"
        messages: list[Message] = []
        for _ in range(self._random.randint(2, 12)):
            if self._random.random() < 0.3:
                messages.append([self._read(self._file())])
            messages += [
                [self._edit(self._file())],
                [("bash", {"command": test}, f"{failure} in {self._seconds()}\n\nCommand exited with code 1")],
            ]
        return [*messages, [self._edit(self._file())], [("bash", {"command": test}, f"12 passed in {self._seconds()}")]]

    def build_gate(self) -> list[Message]:
        """A gate that says one constant line."""
        gate = ("bash", {"command": "npm run build 2>&1 | tail -3"}, "built without errors")
        return [message for _ in range(self._random.randint(2, 9)) for message in ([self._edit(self._file())], [gate])]

    def read_around(self) -> list[Message]:
        return self._parallel([self._read(path) for path in self._random.sample(list(self._text), self._random.randint(2, 9))])

    def search_around(self) -> list[Message]:
        """Some of it in vain."""
        found = []
        for _ in range(self._random.randint(2, 6)):
            number = self._number()
            hit = (
                "" if self._random.random() < 0.4 else f"src/{self._random.choice(_WORDS)}.py:{number}: name_{number}\nsrc/x.py:{number}: y"
            )
            found.append(
                self._random.choice([("grep", {"pattern": f"name_{number}"}, hit), ("bash", {"command": f"rg -n name_{number}"}, hit)])
            )
        return self._parallel(found)

    def page(self) -> list[Message]:
        path = f"docs/book_{self._number()}.txt"
        return [
            [("read_file", {"path": path, "offset": 100 * at, "limit": 100}, f"chapter {self._number()} of the book\n" + "x\n" * 9)]
            for at in range(self._random.randint(3, 30))
        ]

    def poll(self) -> list[Message]:
        """A job that moves now and then."""
        job, messages = f"j{self._number()}", []
        for part in range(self._random.randint(1, 5)):
            said = f'{{"status": "running", "done": {part}}}'
            messages += [[("job_status", {"job_id": job}, said)]] * self._random.randint(1, 6)
        return [*messages, [("job_status", {"job_id": job}, '{"status": "succeeded"}')]]

    def wait(self) -> list[Message]:
        """Pauses, and looks at what does not change for a while."""
        log = f"logs/{self._number()}.log"
        look = ("bash", {"command": f"tail -n 3 {log}"}, "compiling\nstill at it\nplease be patient")
        pause = ("bash", {"command": "sleep 30"}, "")
        rounds = [message for _ in range(self._random.randint(1, 8)) for message in ([pause], [look])]
        return [*rounds, [("bash", {"command": f"tail -n 3 {log}"}, "compiled\nall is well\nbye")]]

    def batch_edit(self) -> list[Message]:
        return self._parallel([self._edit(self._file()) for _ in range(self._random.randint(3, 20))])

    def batch_commands(self) -> list[Message]:
        verb = self._random.choice(
            ["mkdir -p out_{}", "git add file_{}.py", "./process --sample {}", "python3 convert.py {}.csv", "mv {}.tmp {}.txt"]
        )
        done = self._random.choice(["", "done", "loading\nprocessing\nfinished"])
        return self._parallel(
            [("bash", {"command": verb.replace("{}", str(self._number()))}, done) for _ in range(self._random.randint(3, 25))]
        )

    def batch_records(self) -> list[Message]:
        return self._parallel(
            [
                ("create_record", {"title": f"row {self._number()}"}, f'{{"ok": true, "id": {self._number()}}}')
                for _ in range(self._random.randint(3, 15))
            ]
        )

    def read_again(self) -> list[Message]:
        """After each edit."""
        path = self._file()
        return [message for _ in range(self._random.randint(1, 6)) for message in ([self._edit(path)], [self._read(path)])]

    def stumble(self) -> list[Message]:
        """One, two or three different failures, then it works."""
        kind = self._number()
        failures = [
            ("bash", {"command": f"tool{kind} --go"}, f"bash: tool{kind}: command not found"),
            ("read_file", {"path": f"{kind}.txt"}, f"Error: no such file: {kind}.txt"),
            ("edit_file", {"path": "a.py", "old_string": f"{kind}", "new_string": "x"}, "Error: old_string not found in a.py"),
            ("bash", {"command": f"python3 run_{kind}.py"}, f"Traceback (most recent call last):\n  File run\nKeyError: {kind}"),
        ]
        return [*[[step] for step in self._random.sample(failures, self._random.randint(1, 3))], [self._edit(self._file())]]

    def triage(self) -> list[Message]:
        """Suites one by one, most of them green, some red with a report."""
        messages: list[Message] = []
        for _ in range(self._random.randint(3, 14)):
            number = self._number()
            report = "\n".join(f"FAILED test_{number}_{line} - assert {line}" for line in range(6))
            said = f"3 passed in {self._seconds()}" if self._random.random() < 0.7 else f"{report}\n\nCommand exited with code 1"
            messages.append([("bash", {"command": f"pytest -q tests/test_{number}.py"}, said)])
        return messages

    def tick_off(self) -> list[Message]:
        items = [f"item {self._number()}" for _ in range(5)]
        return [
            [
                (
                    "todo_write",
                    {"todos": [{"text": text, "status": "done" if at < done else "pending"} for at, text in enumerate(items)]},
                    "saved",
                )
            ]
            for done in range(6)
        ]

    def tell_many(self) -> list[Message]:
        return self._parallel(
            [
                (
                    "send_message",
                    {"to": f"{self._random.choice(_WORDS)}_{'abcdefghijklmnop'[at]}", "message": "The release is out."},
                    f"sent, message_id: msg_{self._number()}a7",
                )
                for at in range(self._random.randint(3, 12))
            ]
        )

    def research(self) -> list[Message]:
        """Queries, some of them in vain, and pages."""
        messages: list[Message] = []
        for _ in range(self._random.randint(2, 8)):
            number = self._number()
            hits = "No results found." if self._random.random() < 0.3 else f"1. page {number}\n2. page {number}b\n3. page {number}c"
            messages.append([("web_search", {"query": f"how to {number}"}, hits)])
            if self._random.random() < 0.6:
                messages.append([("web_fetch", {"url": f"https://example.org/{number}"}, f"text of page {number}\n" + "word " * 40)])
        return messages

    def commit(self) -> list[Message]:
        """The state is looked at before and after."""
        number = self._number()
        return [
            [("bash", {"command": "git status --short"}, f" M src/{self._random.choice(_WORDS)}_{number}.py")],
            [("bash", {"command": f'git commit -am "step {number}"'}, f"[main {number:07x}] step {number}\n 1 file changed")],
            [("bash", {"command": "git status --short"}, "")],
        ]

    def think(self) -> list[Message]:
        return [[("think", {"thought": f"What about {self._number()}?"}, "")]]

    def verify(self) -> list[Message]:
        """Many checks that are all fine."""
        return self._parallel(
            [("bash", {"command": f"test -f out_{self._number()} && echo ok"}, "ok") for _ in range(self._random.randint(3, 20))]
        )

    def click_through(self) -> list[Message]:
        return [
            [("browser_click", {"ref": "next"}, f"page {self._number()} of the calendar\nmore")] for _ in range(self._random.randint(2, 9))
        ]


# ---- collapses


def _shuffled(random: Random, given: dict[str, Any]) -> str:
    """The same object with its keys in another order and its numbers in another spelling."""
    keys = list(given)
    random.shuffle(keys)
    spelled = {
        key: (str(given[key]) if random.random() < 0.5 else float(given[key])) if isinstance(given[key], int) else given[key]
        for key in keys
    }
    return json.dumps(spelled, indent=random.choice([None, 1]))


_VOLATILE: Sequence[Callable[[int], str]] = (
    lambda number: f"\nmessageId: msg_{number * 7_919_777_333:012x}",
    lambda number: f"\n2026-08-{number % 27 + 1:02d}T10:{number % 60:02d}:07Z",
    lambda number: f"\npid {4_000 + number * 7}",
    lambda number: f"\ndurationMs: {100 + number * 13}",
    lambda number: f"\ntook {number * 0.37:.2f}s",
    lambda number: f"\nattempt {number} of 99",
    lambda number: f"\nread {number}x this session",
)
"""What changes although nothing changed."""


Repeats = Callable[[Random], Iterator[Message]]
PAGE = "Results\n" + "\n".join(f"entry {word}" for word in _WORDS[:6])


def _identical(random: Random) -> Iterator[Message]:
    while True:
        yield [("bash", {"command": "git status"}, "On branch main\nnothing to commit, working tree clean")]


def _volatile_results(random: Random) -> Iterator[Message]:
    drift = random.choice(_VOLATILE)
    for number in count():
        yield [("send_message", {"to": "room", "message": "done"}, "sent" + drift(number))]


def _spellings(random: Random) -> Iterator[Message]:
    while True:
        yield [("read_file", _shuffled(random, {"path": "census.pdf", "max": 200_000, "page": 4}), "page 4 of the census\n...")]


def _labels(random: Random) -> Iterator[Message]:
    for number in count():
        yield [("bash", {"command": "echo noop", "description": f"{random.choice(_WORDS)} {number}"}, "noop")]


def _arguments_that_change_nothing(random: Random) -> Iterator[Message]:
    for number in count():
        yield [("read_file", {"path": "a.txt", "page": 100 + number}, PAGE)]


def _searches_in_vain(random: Random) -> Iterator[Message]:
    for number in count():
        yield [("grep", {"pattern": f"{random.choice(_WORDS)}{number}"}, "No matches found")]


def _one_error(random: Random) -> Iterator[Message]:
    drift = random.choice(_VOLATILE)
    for number in count():
        said = "Traceback (most recent call last):\n  File x, line 1\nFileNotFoundError: [Errno 2] No such file: '/nope'"
        yield [("bash", {"command": f'python3 -c "print(open(p).read()[:{number}])"'}, said + drift(number))]


def _invalid_calls(random: Random) -> Iterator[Message]:
    for number in count():
        name = random.choice(["edit_file", "write_file"])
        yield [(name, {"try": number}, f"Error: InputValidationError: {name} failed, a required parameter is missing")]


def _refused_edits(random: Random) -> Iterator[Message]:
    for number in count():
        yield [("edit_file", {"path": "a.py", "old_string": f"x{number}", "new_string": "y"}, "Error: old_string not found in a.py")]
        yield [("read_file", {"path": f"src/{number}.py"}, f"text {number}\nmore\nand more")]


def _missing_tool(random: Random) -> Iterator[Message]:
    for number in count():
        yield [("web_fetch_v2", {"url": f"https://example.org/{number}"}, "Error: tool 'web_fetch_v2' not found")]


def _rounds(random: Random) -> Iterator[Message]:
    drift = random.choice(_VOLATILE)
    size = random.randint(2, 4)
    steps: list[Step] = [("read_file", {"path": f"{word}.py"}, f"the text of {word}\nmore") for word in random.sample(_WORDS, size)]
    for number in count():
        name, given, said = steps[number % size]
        yield [(name, _shuffled(random, given), said + drift(number))]


def _scattered(random: Random) -> Iterator[Message]:
    for number in count():
        yield [("bash", {"command": "cargo test"}, f"2 failed\ntook {number}.{number}s")]
        yield [("read_file", {"path": f"src/m{number}.rs"}, f"module {number}\nline\nline")]


def _poll_for_ever(random: Random) -> Iterator[Message]:
    drift = random.choice(_VOLATILE)
    for number in count():
        yield [("process", {"action": "poll", "session_id": "s1"}, "running" + drift(number))]


def _reworded(random: Random) -> Iterator[Message]:
    for number in count():
        said = f"Please review the report, wording {number}"
        yield [("send_message", {"to": "peer", "message": said}, f"sent: {said}\nmessageId: msg_{random.randrange(16**12):012x}")]


COLLAPSES: dict[str, tuple[Repeats, int]] = {
    "one call": (_identical, 5),
    "ids, times and counters in the result": (_volatile_results, 5),
    "key order and spelling of numbers": (_spellings, 5),
    "labels": (_labels, 10),
    "arguments that change nothing": (_arguments_that_change_nothing, 10),
    "searches in vain": (_searches_in_vain, 10),
    "one error": (_one_error, 8),
    "invalid calls": (_invalid_calls, 9),
    "refused edits": (_refused_edits, 15),
    "a missing tool": (_missing_tool, 4),
    "rounds": (_rounds, 20),
    "between other calls": (_scattered, 15),
    "polling for ever": (_poll_for_ever, 20),
    "one message reworded": (_reworded, 10),
}
"""What is done over and over, and by which of its calls it has to be stopped."""


def collapse(kind: str, random: Random, *, after: int = 0) -> Recording:
    """Forty calls of a collapse, after so many calls of work."""
    repeats, _ = COLLAPSES[kind]
    messages = Worker(random).work(after) if after else []
    begun = len(messages)
    stuck = repeats(random)
    return recording(kind, [*messages, *[next(stuck) for _ in range(40)]], texts=(begun,) if after else ())
