"""Answers for clients of HTTP/1.0, which knows no chunks."""

from typing import Any

from proxy.client import Client


async def test_a_client_of_http_1_0_gets_a_stream_whole_and_with_its_length() -> None:
    """Nothing goes out before its end; an answer with a length, or that can have no body, passes as it comes."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("nothing is to be read")

    def client() -> Client:
        sent.clear()
        return Client({"headers": [], "http_version": "1.0"}, receive, send)

    streamed = client()
    await streamed.start(200, [(b"content-type", b"text/event-stream")])
    await streamed.write(b"data: 1\n\n")
    assert (sent, streamed.ended) == ([], False)
    await streamed.write(b"data: [DONE]\n\n", more=False)
    assert streamed.ended
    assert sent[0]["headers"] == [(b"content-type", b"text/event-stream"), (b"content-length", b"23")]
    assert [message.get("body") for message in sent] == [None, b"data: 1\n\ndata: [DONE]\n\n"]

    await client().whole(200, [], b"ok")
    assert [message.get("body") for message in sent] == [None, b"ok"]

    await client().start(304, [])
    assert sent[0]["headers"] == []
