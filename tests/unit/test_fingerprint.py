"""When two calls, and two results, are the same."""

import json

import pytest

from proxy.fingerprint import UNSEEN, Fingerprints, canonical, normal_text
from proxy.models import ToolCall

LOOSE = Fingerprints(b"s" * 32, loose=True)
EXACT = Fingerprints(b"s" * 32, loose=False)


def same_call(first: str, second: str, prints: Fingerprints = LOOSE) -> bool:
    return prints.call("t", first) == prints.call("t", second)


def same_result(first: object, second: object) -> bool:
    one, two = json.dumps(first).encode(), json.dumps(second).encode()
    return LOOSE.result(one) == LOOSE.result(two)


# ---- calls


@pytest.mark.parametrize("prints", [LOOSE, EXACT], ids=["loose", "exact"])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ('{"a":1,"b":2}', '{ "b": 2,\n "a": 1 }'),
        ('{"o":{"x":[{"b":1,"a":2}],"y":0}}', '{"o":{"y":0,"x":[{"a":2,"b":1}]}}'),
        ('{"n":1}', '{"n":1.0}'),
        ('{"n":100}', '{"n":1e2}'),
        ('{"n":0}', '{"n":-0.0}'),
        ('{"n":0.1}', '{"n":0.10}'),
        ('{"s":"\\u00e9"}', '{"s":"é"}'),
        ("[]", " [ ] "),
    ],
)
def test_spelling_makes_no_other_call(prints: Fingerprints, first: str, second: str) -> None:
    """Order of keys at every depth, space, escapes and the spelling of a number say nothing."""
    assert same_call(first, second, prints)


@pytest.mark.parametrize("prints", [LOOSE, EXACT], ids=["loose", "exact"])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ('{"offset":0}', '{"offset":100}'),
        ('{"a":1}', '{"b":1}'),
        ('{"a":true}', '{"a":1}'),
        ('{"a":false}', '{"a":null}'),
        ('{"l":[1,2]}', '{"l":[2,1]}'),
        ('{"l":[null]}', '{"l":[]}'),
        ('{"n":9007199254740993}', '{"n":9007199254740992}'),
        ('{"n":1e400}', '{"n":1e401}'),
        ('{"n":1.5}', '{"n":"1.5"}'),
        ('{"s":"a  b"}', '{"s":"a b"}'),
        ('{"s":"A"}', '{"s":"a"}'),
        ('{"broken', '{"broken2'),
        ("{}", "[]"),
        ("{}", ""),
    ],
)
def test_every_argument_counts(prints: Fingerprints, first: str, second: str) -> None:
    """Whatever may be another request stays one, in both ways of comparing."""
    assert not same_call(first, second, prints)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ('{"n":5}', '{"n":"5"}'),
        ('{"n":-5}', '{"n":" -5 "}'),
        ('{"a":1,"b":null}', '{"a":1}'),
        ('{"o":{"x":null}}', '{"o":{}}'),
        ('{"s":"x"}', '{"s":" x\\n"}'),
        ('["7"]', "[7]"),
        ("not json ", "not json"),
    ],
)
def test_loose_rules_hold_only_when_loose(first: str, second: str) -> None:
    """An integer in quotes, null and white space at the ends are equal to what they stand for; `exact` keeps them apart."""
    assert same_call(first, second)
    assert not same_call(first, second, EXACT)


@pytest.mark.parametrize("text", ["05", "5.0", "+5", "5e1", "0x5", "--5", "5 5", "\u0665", ""])
def test_only_an_exact_integer_in_quotes_is_one(text: str) -> None:
    """A code with a leading zero or a number in another spelling stays a string."""
    assert json.loads(canonical(json.dumps({"n": text}), loose=True)) == {"n": text}


def test_constants_that_json_does_not_have_are_read() -> None:
    """Models write NaN; it equals itself."""
    assert same_call('{"a":NaN,"b":1}', '{"b":1,"a":NaN}')


def test_a_tools_name_is_part_of_the_call() -> None:
    """Equal arguments of another tool are another call, wherever name and arguments meet."""
    assert LOOSE.call("a", "{}") != LOOSE.call("b", "{}")
    assert LOOSE.call("a\0raw:x", "y") != LOOSE.call("a", "x\0raw:y")
    assert LOOSE.call("a\0", "x") != LOOSE.call("a", "\0x")


@pytest.mark.parametrize("depth", [64, 65, 500, 100_000])
def test_deep_arguments_are_compared(depth: int) -> None:
    """However deep, a call equals itself and no other."""
    deep = "[" * depth + "]" * depth
    assert same_call(deep, deep)
    assert not same_call(deep, f"[{deep}]")
    assert same_call(deep, f" {deep} ")


def test_reordering_ends_where_arguments_are_absurdly_deep() -> None:
    """Beyond 64 levels the raw text decides."""
    below = '{"a":' * 60 + "%s" + "}" * 60
    beyond = '{"a":' * 70 + "%s" + "}" * 70
    assert same_call(below % '{"x":1,"y":2}', below % '{"y":2,"x":1}')
    assert not same_call(beyond % '{"x":1,"y":2}', beyond % '{"y":2,"x":1}')


@pytest.mark.parametrize("prints", [LOOSE, EXACT], ids=["loose", "exact"])
def test_half_an_emoji_is_compared_like_other_text(prints: Fingerprints) -> None:
    """Alone or in an argument, in a name or an id, in its escaped form or as it is."""
    half, other = "\ud83d", "\ud83e"
    assert same_call(f'{{"a":"{half}","b":1}}', f'{{"b":1,"a":"{json.dumps(half)[1:-1]}"}}', prints)
    assert not same_call(f'{{"a":"{half}"}}', f'{{"a":"{other}"}}', prints)
    assert prints.call(half, "{}") not in (prints.call(other, "{}"), prints.call("", "{}"), prints.call("?", "{}"))
    assert prints.text("user", half) not in (prints.text("user", other), prints.text("user", "?"))
    assert len({prints.message((ToolCall(id, "t", "{}"),)) for id in (half, other, "", None)}) == 4


def test_fingerprints_need_the_secret() -> None:
    """Nobody without it can make two calls collide, or guess what a record holds."""
    other = Fingerprints(b"t" * 32, loose=True)
    assert LOOSE.call("t", "{}") != other.call("t", "{}")
    assert LOOSE.result(b'"x"') != other.result(b'"x"')
    assert LOOSE.raw_result(b'"x"') != other.raw_result(b'"x"')


def test_caches_stay_small_and_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand different calls, results, texts and messages do not stay in memory, and come out as they did before."""
    monkeypatch.setattr("proxy.fingerprint._CACHE_SIZE", 100)
    prints = Fingerprints(b"s" * 32, loose=True)

    def identities(number: int) -> tuple[object, ...]:
        content = b'"r%d"' % number
        message = prints.message((ToolCall("i", "t", str(number)),))
        return prints.call("t", str(number)), prints.result(content), prints.text("user", f"u{number}"), message

    before = identities(0)
    for number in range(1, 1000):
        assert identities(number) != before
    assert all(96 < len(cache) <= 100 for cache in (prints._calls, prints._results, prints._texts, prints._messages))
    assert identities(0) == before


# ---- results


def test_the_two_identities_of_a_result_cannot_be_mixed_up() -> None:
    """The exact one is even, the normalised one odd, and neither means that nothing has arrived."""
    for number in range(64):
        content = json.dumps(f"result {number}").encode()
        assert LOOSE.raw_result(content) % 2 == 0
        assert LOOSE.result(content) % 2 == 1
        assert LOOSE.raw_result(content) != UNSEEN != LOOSE.result(content)


METER = (
    "  % Total    % Received\n                 Dload  Upload\n\r100  1256  100  1256    0     0  {}      0 --:--:-- --:--:-- --:--:-- {}"
)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("at 2026-01-05 12:30:01 ok", "at 2026-01-06 13:31:02 ok"),
        ("2026-01-05T12:30:01.123Z done", "2026-01-05T12:30:09.456Z done"),
        ("05/01/2026, 12:30 PM x", "05/01/2026, 1:31 AM x"),
        ("[12:30:01] up", "[12:30:59,123] up"),
        ("12:30:01 UTC x", "12:30:02 UTC x"),
        ("ran in 120 ms", "ran in 98 ms"),
        ("0.37s", "11s"),
        ("12\u00b5s", "13\u03bcs"),
        ("took 3 seconds", "took 4 seconds"),
        ("took 1.25 s", "took 3.0 s"),
        ('{"duration_seconds":0.30000000000000004}', '{"duration_seconds":0.1}'),
        ("real 0m0.003s", "real 1m12.9s"),
        ("up 1h2m3s", "up 1h 3m 4s"),
        ("up 2h 5m", "up 3h6min"),
        ('{"duration_ms": 12, "n": 1}', '{"duration_ms": 13, "n": 1}'),
        ("elapsedTime=12.5", "elapsedTime=13"),
        ('{"took": 5}', '{"took": 6}'),
        ("query_time: 0.25", "query_time: 0.5"),
        ("runtime: 12", "runtime: 13"),
        ('{"created_at": 1767600000}', '{"created_at": 1767600001}'),
        ("killed pid 123", "killed pid 77"),
        ("PID=123", "PID=4"),
        ("Signal: 0\nProcess Group PGID: 10842", "Signal: 0\nProcess Group PGID: 884"),
        ("ppid 12 sid 4", "ppid 9 sid 4"),
        ("Background PIDs: 101, 102\nError: none", "Background PIDs: 7, 1044\nError: none"),
        ("request id: req_1a2b3c", "request id: req_9z8y7x"),
        ('{"messageId": "m-1"}', '{"messageId": "m-22"}'),
        ("session-id 4711abc", "session-id 4712abd"),
        ("Chunk ID: 37b261\nWall time: 0.0000 seconds", "Chunk ID: bcfccd\nWall time: 0.0213 seconds"),
        ("sent msg_01XFDUDYJgAACzvnptvVoYEL", "sent msg_02aaDUDYJgAACzvnptvVoYXX"),
        ("chatcmpl-550e8400-e29b-41d4-a716-446655440000", "chatcmpl-550e8400-e29b-41d4-a716-446655440001"),
        ("call_1736150400123", "call_1736150400999"),
        ("id 550e8400-e29b-41d4-a716-446655440000", "id 550e8400-e29b-41d4-a716-446655440001"),
        ("attempt 1 of 5 failed", "attempt 2 of 5 failed"),
        ("retry #1", "retry #2"),
        ("read 3x this session", "read 4 times this session"),
        ("wrote /tmp/tmpab12cd34/out", "wrote /tmp/tmpzz99yy88/out"),
        ("wrote /tmp/tmpabcdefgh", "wrote /tmp/tmphgfedcba"),
        ("in /tmp/pip-build-a1b2c3d4/x", "in /tmp/pip-build-z9y8x7w6/x"),
        ("/private/var/folders/zz/ab12_c/T/tmpx1y2/y", "/private/var/folders/zz/ab12_c/T/tmpq2z3/y"),
        ("C:\\Temp\\tmpa1b2\\x", "C:\\Temp\\tmpc3d4\\x"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("  text\n", "text"),
        (METER.format(40740, 41866), METER.format("55.3k", "57090")),
        (METER.format(40740, 41866), METER.format(40740, 41866).replace("--:--:-- ", " 0:00:01 ", 2)),
    ],
)
def test_what_changes_although_nothing_changed_is_left_out(first: str, second: str) -> None:
    """Clock times, durations, ids, counters of attempts, temporary paths, colours."""
    assert same_result(first, second)


RUNS = "58d303d6-ba28-4c88-9f18-d032e5f00db4"


@pytest.mark.parametrize(
    ("form", "first", "second"),
    [  # Claude Code
        ("Command running in background with ID: {0}. Output is being written to: /tmp/c/{0}.output. You", "bo0igrnp5", "b0558b"),
        ("Command was manually backgrounded by user with ID: {0}. Output is being written to: /tmp/{0}.output", "bxyzxyzxy", "b1abcab"),
        ("and was moved to the background (ID: {0}). Output is being written to: C:\\T\\{0}.output.", "bo1", "by7jmgia3"),
        (f"Output too large (31.2KB). Full output saved to: /r/{RUNS}/tool-results/{{}}.txt\n\nPreview", "bj7wqc2ln", "babcdefgh"),
        ("Workflow launched in background. Task ID: {0}\nSummary", "wa67f4fdf", "w0a67f4fd"),
        ("Async agent launched.\nagentId: {0} (Use SendMessage with to: '{0}' to continue)", "aa67f4fdf438e9e3b", "0a67f4fdf438e9e3c"),
        ("[Truncated. Full output: /tmp/claude-1000/-w/tasks/{}.output]", "a2b4515", "bbbbbbb"),
        # opencode
        ("5 lines truncated...\n\nFull output saved to: /x/tool_{}", "09f0cd1fb001cwpNxZMhhUWDor", "e2d9181760019dSRvynSHdCOru"),
        ("output truncated; full content saved to /x/tool_{} ...", "09f0cd1fb001cwpNxZMhhUWDor", "e2d9181760019dSRvynSHdCOru"),
        ("task_id: ses_{} (for resuming)\n\n<task_result>", "312ffafffffeSBGGndTbRZH5i1", "2884879b9ffeNO4sJpWS27FhIj"),
        # gemini-cli and qwen-code
        (f"Full output available at: /x/session-{RUNS}/run_shell_command_{{}}.txt", "1780259847790_0_xyslci", "1777282384785_1_ab"),
        ("Exit Code: 0\nBackground PIDs: {}\nProcess Group PGID: {}", "4501", "17"),
        ("The full output has been saved to: /x/{}.output\nTo read the complete", "call_a1", "call_b27"),
        ("Background command started. PID: {} (Use kill <pid> to stop)", "101", "7"),
        ("Command moved to background (PID: {}). Output hidden.", "19088", "4"),
        # Copilot, Crush, Roo Code, pi
        ("x\n<shellId: {} completed with exit code 0>", "0", "13"),
        ("<command with shellId: {} is still running after 30 seconds.", "266", "12"),
        ("Background shell started with ID: {}\n\nUse job_output", "00A", "01F"),
        ("... [12 lines truncated, full output: /x/spill/bash-{}.log] ...", "1", "22"),
        ("moved to background.\n\nBackground shell ID: {}\n", "00A", "01F"),
        ("[OUTPUT TRUNCATED - Full output saved to artifact: cmd-{}.txt]", "1706119234567", "1706119239999"),
        ("[Showing lines 1-2 of 3. Full output: /tmp/pi-bash-{}.log]", "0a1b2c3d4e5f6071", "9999999999999999"),
        # Kimi, OpenClaw, hermes, Codex
        ("task_id: bash-{}\npid: 8320\nstatus: running", "68knhfmp", "j09o28r9"),
        ("Command still running (session {}). Use process", "good-river, pid 2506465", "nimble-coral, pid 561"),
        ('{{"output": "Background process started", "session_id": "proc_{}", "exit_code": 0}}', "a1b2c3d4e5f6", "00aabbccddee"),
        ("Wall time: {} seconds\nOutput:\nx", "0.1", "10.0213"),
        ("Process running with session ID {}\nOriginal token count: 9", "52328", "7"),
    ],
)
def test_what_a_client_calls_a_command_and_its_output_is_left_out(form: str, first: str, second: str) -> None:
    """Numbers and names of shells, of background commands, and of the files that long outputs are put in."""
    assert same_result(form.format(first, first), form.format(second, second))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("2026-01-05", "2026-01-06"),
        ("exit code 1", "exit code 2"),
        ("errno 2", "errno 13"),
        ("HTTP 404", "HTTP 500"),
        ("HTTP/1.1 200 OK", "HTTP/1.1 201 OK"),
        ("listening on 127.0.0.1:8080", "listening on 127.0.0.1:8081"),
        ("port 80", "port 81"),
        ("3 failed, 7 passed", "2 failed, 8 passed"),
        ("a.py:10:5: error", "a.py:11:5: error"),
        ("line 10", "line 11"),
        ("chunk 10", "chunk 11"),
        ("12 files", "13 files"),
        ("took 3 steps", "took 4 steps"),
        ("5 s and more", "6 s and more"),
        ("RuntimeError: 3 left", "RuntimeError: 2 left"),
        ("Python runtime 3.11", "Python runtime 3.12"),
        ("run_phase1.sh failed", "run_phase2.sh failed"),
        ("session_20260105.log", "session_20260106.log"),
        ("request_handler_2 failed", "request_handler_3 failed"),
        ("version 1.2.3", "version 1.2.4"),
        ("5 items", "5 ites"),
        ("$5m raised", "$6m raised"),
        ("/tmp/report.txt", "/tmp/result.txt"),
        ("", "x"),
        (METER.format(40740, 41866), METER.format(40740, 41866).replace("1256", "1257")),
        ("--:--:-- 3 left", "--:--:-- 2 left"),
        ("user ID: 12", "user ID: 13"),
        ("task_id: 7", "task_id: 8"),
        ("task_id: build-12345678", "task_id: build-12345679"),
        ("background color: 3", "background color: 4"),
        ("the background image of slide id: 3", "the background image of slide id: 4"),
        ("Revision 7 moved to: '0123456789ab'", "Revision 7 moved to: 'abcdef012345'"),
        ("full content docs/1.md has errors", "full content docs/2.md has errors"),
        ("saved to: out/report_1.csv", "saved to: out/report_2.csv"),
        ("Full output: 3 lines", "Full output: 4 lines"),
        ("full content: 3. part", "full content: 4. part"),
        ("tool_utf8decoder", "tool_utf8encoder"),
        ("session red-1", "session red-2"),
    ],
)
def test_what_may_be_news_is_kept(first: str, second: str) -> None:
    """Dates alone, codes, ports, places, counts and names are what a result says."""
    assert not same_result(first, second)


def test_a_long_result_is_normalised_at_both_ends() -> None:
    """Clock times in head and tail of a long output do not make it another; whatever its middle says does."""
    middle = "line of words with no number in it\n" * 2000
    short, long = f"took: 9\n{middle}at 12:00:01", f"took: 10000\n{middle}at 13:00:02"
    assert same_result(short, long)
    assert not same_result(short, short.replace("at", "or", 1))
    assert not same_result(short, f"took: 9\n{middle}x{middle}at 12:00:01")


def test_beyond_a_bound_a_requests_results_are_known_by_their_bytes() -> None:
    """By those of the texts of failures too, until the next request."""
    prints = Fingerprints(b"s" * 32, loose=True)
    early, late = prints.error("at 12:00:01"), prints.error("at 12:00:02")
    for number in range(40):
        prints.result(b'"%d %s"' % (number, b"x" * 40_000))
    assert prints.result(b'"at 12:00:01"') != prints.result(b'"at 12:00:02"')
    assert prints.result(b'"at 12:00:01"') == prints.result(b'"at 12:00:01"')
    assert prints.result(b'"at 12:00:01"') & 1
    assert (early == late, prints.error("at 12:00:01") == prints.error("at 12:00:02")) == (True, False)
    prints.begin()
    assert prints.result(b'"at 12:00:01"') == prints.result(b'"at 12:00:02"')
    assert prints.error("at 12:00:03") == early


def test_a_long_result_in_parts_is_normalised_at_both_ends() -> None:
    """So that many parts cost no more than one text of their length: a megabyte of digits would hold up everybody for half a second."""

    def parts(first: str, middle: str, last: str) -> list[dict[str, str]]:
        filling = "line of words with no number in it\n" * 500
        return [{"type": "text", "text": text} for text in (first, filling, filling, middle, filling, filling, last)]

    plain = parts("took: 9", "at 12:00:01", "at 12:00:01")
    assert same_result(plain, parts("took: 10000", "at 12:00:01", "at 13:00:02"))
    assert not same_result(plain, parts("took: 9", "at 13:00:02", "at 12:00:01"))


@pytest.mark.parametrize(
    ("plain", "noted"),
    [
        ("out", "out\n\n[lastcall] three times now"),
        ("", "[lastcall] three times now"),
        ([{"type": "text", "text": "out"}], [{"type": "text", "text": "out"}, {"type": "text", "text": "[lastcall] three times now"}]),
        (["out"], ["out", "[lastcall] three times now"]),
    ],
)
def test_lastcalls_own_notes_are_no_part_of_a_result(plain: object, noted: object) -> None:
    """What one Lastcall appended does not look like news to another behind it."""
    assert same_result(plain, noted)


def test_parts_are_compared_by_what_they_hold() -> None:
    """Text by text, images by content; a cache marker that moves says nothing."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    assert same_result([{"type": "text", "text": "at 12:00:01"}], [{"type": "text", "text": "at 12:00:02", "cache_control": {}}])
    assert same_result([{"type": "text", "text": "x"}], "x")
    assert same_result([image], [image | {"cache_control": {"type": "ephemeral"}}])
    assert same_result([image], [dict(reversed(image.items()))])
    assert not same_result([image], [image | {"image_url": {"url": "data:image/png;base64,AAAB"}}])
    assert not same_result(["a", "b"], ["ab"])
    assert same_result({"text": "pid 1"}, {"text": "pid 2"})
    assert not same_result(1, 2)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b'"open', b'"\\ud800"', b"[" * 100_000, b"[" * 800 + b"]" * 800, b"NaN", b"1e999"])
def test_whatever_a_tool_returned_has_an_identity(content: bytes) -> None:
    """Malformed, undecodable or absurdly nested content is compared too, and equals itself."""
    assert LOOSE.result(content) == Fingerprints(b"s" * 32, loose=False).result(content)


def test_normal_text_of_an_escape_that_never_ends() -> None:
    """An unfinished escape stays text."""
    assert normal_text("\x1b]0;title") == "\x1b]0;title"


def test_arguments_with_something_behind_them_are_raw_text() -> None:
    """What follows a whole value makes it no JSON."""
    assert canonical('{"a": 1} {"b": 2}', loose=True) == b'raw:{"a": 1} {"b": 2}'
    assert canonical(' {"a": 1}\n', loose=False) == b'{"a":1}'
