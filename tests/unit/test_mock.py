"""The scripted endpoint: it collapses as told, answers from history alone, and speaks a wire format that strict clients read."""

import contextlib
import json
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import openai
import pytest
import uvicorn
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from proxy import mock
from proxy.errors import ConfigError

BASH = {
    "type": "function",
    "function": {
        "name": "bash",
        "parameters": {
            "type": "object",
            "properties": {"command": {"type": "string"}, "timeout": {"type": "integer"}},
            "required": ["command"],
        },
    },
}
ASK: list[dict[str, Any]] = [{"role": "user", "content": "What changed?"}]


def tool(name: str, **properties: Any) -> dict[str, Any]:
    """A function tool whose every property is required."""
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


def after(turns: int) -> list[dict[str, Any]]:
    """A history in which the model has made a call that many times."""
    history = list(ASK)
    for turn in range(turns):
        call = {"id": f"c{turn}", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
        history.append({"role": "assistant", "content": None, "tool_calls": [call]})
        history.append({"role": "tool", "tool_call_id": f"c{turn}", "content": "On branch main\nclean"})
    return history


class Endpoint:
    """A running mock: ask it as the SDK does, or over raw HTTP."""

    def __init__(self, url: str, served: list[mock.Served]) -> None:
        self.url = url
        self.served = served
        self.client = openai.OpenAI(
            base_url=f"{url}/v1", api_key="none", max_retries=0, http_client=openai.DefaultHttpxClient(trust_env=False)
        )

    def ask(self, history: list[dict[str, Any]] = ASK, **more: Any) -> ChatCompletion:
        options: dict[str, Any] = {"model": "m", "tools": [BASH], "messages": history} | more
        answer: ChatCompletion = self.client.chat.completions.create(**options)
        return answer

    def calls(self, history: list[dict[str, Any]] = ASK, **more: Any) -> list[tuple[str, str]]:
        """Name and argument text of each call in the answer."""
        message = self.ask(history, **more).choices[0].message
        return [(call.function.name, call.function.arguments) for call in message.tool_calls or () if call.type == "function"]

    def raw(self, body: bytes) -> tuple[int, bytes]:
        request = urllib.request.Request(f"{self.url}/v1/chat/completions", body, {"content-type": "application/json"})
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=5) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()


@contextlib.contextmanager
def running(script: mock.Script | None = None) -> Iterator[Endpoint]:
    """A mock behind a real server on a free port."""
    served: list[mock.Served] = []
    server = uvicorn.Server(uvicorn.Config(mock.build(script, on_served=served.append), log_level="critical", lifespan="off"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        endpoint = Endpoint(f"http://127.0.0.1:{listener.getsockname()[1]}", served)
        try:
            yield endpoint
        finally:
            endpoint.client.close()
            server.should_exit = True
            thread.join(10)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Endpoint]:
    with running() as default:
        yield default


class TestCollapse:
    def test_asks_for_the_same_call_however_often_it_was_made(self, endpoint: Endpoint) -> None:
        """The default script never ends while tools are offered."""
        assert {tuple(endpoint.calls(after(turns))) for turns in (0, 1, 7)} == {(("bash", '{"command": "git status"}'),)}

    def test_every_answer_has_ids_of_its_own(self, endpoint: Endpoint) -> None:
        """Clients merge answers that share an id."""
        answers = [endpoint.ask() for _ in range(3)]
        assert len({answer.id for answer in answers}) == 3
        assert len({call.id for answer in answers for call in answer.choices[0].message.tool_calls or ()}) == 3

    def test_concludes_from_the_last_result_when_tools_are_forbidden(self, endpoint: Endpoint) -> None:
        """`tool_choice: none` brings an answer in text."""
        choice = endpoint.ask(after(2), tool_choice="none").choices[0]
        assert (choice.finish_reason, choice.message.tool_calls) == ("stop", None)
        assert choice.message.content == "This is what I know: On branch main"

    def test_a_result_in_parts_is_read_too(self, endpoint: Endpoint) -> None:
        """Tool results may be lists of text parts."""
        parts = {"role": "tool", "tool_call_id": "c0", "content": [{"type": "text", "text": "3 files"}]}
        answer = endpoint.ask([*after(1)[:-1], parts], tool_choice="none")
        assert answer.choices[0].message.content == "This is what I know: 3 files"

    def test_without_tools_it_answers_in_text(self, endpoint: Endpoint) -> None:
        """Nothing to call, nothing to repeat."""
        assert endpoint.ask(tools=openai.omit).choices[0].message.content == "I have nothing to add."

    def test_a_forced_tool_is_called(self, endpoint: Endpoint) -> None:
        """A named `tool_choice` outranks the script."""
        finish = tool("finish", summary={"type": "string"})
        choice = {"type": "function", "function": {"name": "finish"}}
        assert endpoint.calls(tools=[BASH, finish], tool_choice=choice) == [("finish", '{"summary": "example"}')]


class TestChoosing:
    @pytest.mark.parametrize(
        ("names", "chosen"),
        [
            (("delete_file", "read_file", "run_shell_command"), "run_shell_command"),
            (("Write", "Bash", "Read"), "Bash"),
            (("thread_create", "readFile"), "readFile"),
            (("delete_file", "finish"), "delete_file"),
        ],
    )
    def test_prefers_a_tool_that_only_looks(self, endpoint: Endpoint, names: tuple[str, ...], chosen: str) -> None:
        """Whole words of the name decide; with none known it is the first tool."""
        assert endpoint.calls(tools=[tool(name) for name in names]) == [(chosen, "{}")]

    def test_an_unknown_tool_gets_values_that_name_nothing(self, endpoint: Endpoint) -> None:
        """A tool that may delete is never pointed at a file that exists."""
        assert endpoint.calls(tools=[tool("delete_file", path={"type": "string"})]) == [("delete_file", '{"path": "example"}')]

    def test_required_properties_fit_the_schema(self, endpoint: Endpoint) -> None:
        """One property of each kind."""
        offered = tool(
            "bash",
            command={"type": "array", "items": {"type": "string"}},
            path={"type": ["string", "null"]},
            mode={"type": "string", "enum": ["fast", "slow"]},
            depth={"anyOf": [{"type": "integer"}, {"type": "null"}]},
            force={"type": "boolean"},
            version={"const": 2},
            where={"type": "object", "properties": {"line": {"type": "integer"}, "mark": True}, "required": ["line", "mark"]},
        )
        [(_, arguments)] = endpoint.calls(tools=[offered])
        assert json.loads(arguments) == {
            "command": ["git", "status"],
            "path": "README.md",
            "mode": "fast",
            "depth": 1,
            "force": False,
            "version": 2,
            "where": {"line": 1, "mark": "example"},
        }


class TestWire:
    def test_usage_is_a_quarter_of_the_bytes(self, endpoint: Endpoint) -> None:
        """What is reported follows from what was sent, and equals what was logged."""
        endpoint.served.clear()
        usage = endpoint.ask(after(3)).usage
        [served] = endpoint.served
        assert usage is not None
        assert usage.prompt_tokens == served.input_tokens == -(-len(served.body) // 4)
        assert usage.completion_tokens == served.output_tokens == -(-len('bash({"command": "git status"})') // 4)
        assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens

    def test_a_stream_says_the_same_as_a_whole_answer(self, endpoint: Endpoint) -> None:
        """The SDK's strict streaming helper rebuilds the call, its arguments split over several chunks."""
        options: dict[str, Any] = {"model": "m", "messages": ASK, "tools": [BASH], "stream_options": {"include_usage": True}}
        with endpoint.client.chat.completions.stream(**options) as stream:
            events = [event for event in stream if event.type == "tool_calls.function.arguments.delta"]
            final = stream.get_final_completion()
        [call] = final.choices[0].message.tool_calls or []
        assert (call.function.name, call.function.arguments) == ("bash", '{"command": "git status"}')
        assert (final.choices[0].finish_reason, len(events) > 1, final.usage is not None) == ("tool_calls", True, True)

    def test_streamed_text_arrives_in_pieces(self, endpoint: Endpoint) -> None:
        """A text answer streams too, and without `include_usage` there is no usage event."""
        options: dict[str, Any] = {"model": "m", "messages": after(1), "tools": [BASH], "tool_choice": "none", "stream": True}
        chunks: list[ChatCompletionChunk] = list(endpoint.client.chat.completions.create(**options))
        texts = [choice.delta.content for chunk in chunks for choice in chunk.choices if choice.delta.content]
        assert "".join(texts) == "This is what I know: On branch main"
        assert (len(texts) > 1, [chunk for chunk in chunks if chunk.usage]) == (True, [])

    def test_a_stream_ends_with_the_terminator(self, endpoint: Endpoint) -> None:
        """Every event is one data line."""
        _, body = endpoint.raw(json.dumps({"model": "m", "messages": ASK, "stream": True}).encode())
        events = body.decode().split("\n\n")
        assert all(event.startswith("data: ") for event in events[:-1])
        assert events[-2:] == ["data: [DONE]", ""]

    @pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"messages": 3}', b'{"messages": [{"role": "\xff"}]}'])
    def test_what_is_no_request_gets_a_clear_error(self, endpoint: Endpoint, body: bytes) -> None:
        """400 in OpenAI's error shape."""
        status, answer = endpoint.raw(body)
        assert status == 400
        assert json.loads(answer)["error"]["message"].startswith("not a chat completions request: ")

    def test_models_are_listed(self, endpoint: Endpoint) -> None:
        """Clients that check for the model before they start find one."""
        assert [model.id for model in endpoint.client.models.list()] == ["mock"]


class TestScript:
    def test_steps_follow_the_history_and_the_last_repeats(self) -> None:
        """The number of assistant messages chooses, so that a retry gets the same answer."""
        script = mock.parse_script('[{"name": "read", "arguments": {"n": 1}}, {"name": "read", "arguments": "not json"}]')
        with running(script) as endpoint:
            seen = [endpoint.calls(after(turns)) for turns in (1, 0, 0, 5)]
        first, last = [("read", '{"n": 1}')], [("read", "not json")]
        assert seen == [last, first, first, last]

    def test_a_step_may_hold_parallel_calls(self) -> None:
        """Each call with an id of its own."""
        script = mock.parse_script('[{"calls": [{"name": "a", "arguments": {}}, {"name": "a", "arguments": {}}, {}]}]')
        with running(script) as endpoint:
            calls = endpoint.ask().choices[0].message.tool_calls or []
        assert len({call.id for call in calls}) == 3
        assert [call.function.name for call in calls if call.type == "function"] == ["a", "a", "bash"]

    def test_a_step_may_be_text_or_an_error(self) -> None:
        """Text is sent as it stands, an empty one too; a status comes in OpenAI's error shape."""
        with running(mock.parse_script('[{"text": "Done."}, {"text": ""}, {"status": 503}]')) as endpoint:
            assert endpoint.ask().choices[0].message.content == "Done."
            assert endpoint.ask(after(1)).choices[0].message.content == ""
            with pytest.raises(openai.InternalServerError, match="the script says 503"):
                endpoint.ask(after(2))
            assert [served.status for served in endpoint.served] == [200, 200, 503]

    def test_it_can_ignore_that_tools_are_forbidden(self) -> None:
        """Some servers do."""
        with running(mock.parse_script('{"ignores_none": true}')) as endpoint:
            assert endpoint.calls(tool_choice="none") == [("bash", '{"command": "git status"}')]

    def test_it_can_heed_a_nudge(self) -> None:
        """It concludes as soon as the request holds one, and not for a stop line."""
        with running(mock.parse_script('{"heeds_nudge": true}')) as endpoint:
            assert endpoint.calls([*after(3), {"role": "user", "content": "[lastcall stop] x"}])
            assert not endpoint.calls([*after(3), {"role": "user", "content": "[lastcall] Enough."}])

    @pytest.mark.parametrize(
        ("text", "fault"),
        [
            ("[]", "length >= 1"),
            ("{", "truncated"),
            ('[{"nam": "x"}]', r"unknown field `nam` - at `\$\[0\]`"),
            ('[{"status": 200}]', r">= 400 - at `\$\[0\].status`"),
            ('{"steps": [{"arguments": 3}]}', r"\$.steps\[0\].arguments"),
        ],
    )
    def test_a_fault_in_a_script_is_named_with_its_place(self, text: str, fault: str) -> None:
        """The message says what is wrong and where."""
        with pytest.raises(ConfigError, match=fault):
            mock.parse_script(text)

    def test_a_script_that_cannot_be_read_is_named(self) -> None:
        """`serve` refuses before it opens a port."""
        with pytest.raises(ConfigError, match=r"'/nowhere/script\.json' cannot be read"):
            mock.serve(host="127.0.0.1", port=0, script="/nowhere/script.json")


def test_a_port_in_use_is_said_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    """No address is named that will not be served."""
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(ConfigError, match="another program uses that port"):
        mock.serve(host="127.0.0.1", port=other.getsockname()[1], script=None)
    assert capsys.readouterr().out == ""


def test_the_served_endpoint_logs_a_line_a_request() -> None:
    """What the command runs: a real process, its address first and its log after it on its output."""
    code = "from proxy import mock; mock.serve(host='127.0.0.1', port=0, script=None)"
    process = subprocess.Popen([sys.executable, "-u", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        said = next(lines)
        url = said.split("base URL at ")[1].split("/v1")[0]
        with contextlib.closing(Endpoint(url, []).client) as client:
            options: dict[str, Any] = {"model": "m", "messages": ASK, "tools": [BASH]}
            client.chat.completions.create(**options)
        logged = next(line for line in lines if line.startswith("200"))
        assert logged.rstrip().endswith('tokens in  bash({"command": "git status"})')
    finally:
        process.terminate()
        process.wait(10)
        if process.stdout is not None:
            process.stdout.close()


def test_the_messages_api_stands_beside() -> None:
    """On the same port and by the same script, with its count of tokens."""
    with running(mock.Script((mock.Step(name="bash", arguments={"command": "ls"}),))) as model:
        tools = [{"name": "bash", "input_schema": {"type": "object"}}]
        answer = posted(model.url, "/v1/messages", {"max_tokens": 9, "messages": [{"role": "user", "content": "hi"}], "tools": tools})
        counted = posted(model.url, "/v1/messages/count_tokens", {"messages": []})

    assert [(block["name"], block["input"]) for block in answer["content"]] == [("bash", {"command": "ls"})]
    assert model.served[0].said == 'bash({"command": "ls"})'
    assert counted["input_tokens"] > 0


def posted(url: str, path: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as response:
        return json.load(response)
