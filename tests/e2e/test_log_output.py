"""An error output that nobody reads: the log waits, traffic does not."""

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest

import proxy
from tests.agents import Agent
from tests.servers import free_port
from tests.upstreams import Upstream


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_log_that_nobody_reads_holds_up_nobody(
    upstream: Upstream, http: aiohttp.ClientSession, redis_url: str, workers: int
) -> None:
    """Neither Lastcall's own lines nor what the server says of malformed requests; the process still ends when told."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    arguments = ["serve", "--port", str(port), "--upstream", upstream.url, "--store", redis_url, "--workers", str(workers)]
    unread, stderr = os.pipe()
    assert proxy.__file__ is not None
    served = subprocess.Popen(  # noqa: ASYNC220 - returns at once
        [sys.executable, "-c", "from proxy.cli import main; main()", *arguments],
        env=os.environ | {"PYTHONPATH": str(Path(proxy.__file__).parent.parent)},
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        start_new_session=True,
    )
    try:
        await _until_live(http, url)
        os.set_blocking(stderr, False)  # shared with the process for a moment, to fill the pipe to its end
        try:
            while True:
                os.write(stderr, b"x" * 4096)
        except BlockingIOError:
            os.set_blocking(stderr, True)
        for _ in range(5):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"nonsense\r\n\r\n")
            async with asyncio.timeout(10):
                assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
            writer.close()
        for _ in range(5):
            async with asyncio.timeout(10):
                assert (await Agent(http, f"{url}/v1").ask()).status == 200
            await asyncio.sleep(0.12)  # longer than lines are gathered
        served.terminate()
        await asyncio.to_thread(served.wait, 10)
    finally:
        with suppress(ProcessLookupError):  # it has ended, and all its workers
            os.killpg(served.pid, signal.SIGKILL)
        served.wait()
        os.close(unread)
        os.close(stderr)


async def test_lines_for_a_reader_that_has_gone_are_counted(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """`lastcall_log_lines_dropped_total` says so, and its alert."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    assert proxy.__file__ is not None
    served = subprocess.Popen(  # noqa: ASYNC220 - returns at once
        [sys.executable, "-c", "from proxy.cli import main; main()", "serve", "--port", str(port), "--upstream", upstream.url],
        env=os.environ | {"PYTHONPATH": str(Path(proxy.__file__).parent.parent)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        await _until_live(http, url)
        assert served.stderr is not None
        served.stderr.close()
        assert (await Agent(http, f"{url}/v1").ask()).status == 200
        async with asyncio.timeout(10):
            while True:
                async with http.get(f"{url}/metrics") as answer:
                    if "\nlastcall_log_lines_dropped_total 1.0\n" in await answer.text():
                        break
                await asyncio.sleep(0.05)
    finally:
        served.kill()
        served.wait()


async def _until_live(http: aiohttp.ClientSession, url: str) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                async with http.get(f"{url}/livez"):
                    return
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.05)
