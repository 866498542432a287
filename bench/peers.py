"""Other proxies to compare with, each installed into a virtual environment of its own, on demand."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.servers import REPO, Bench, Server, free_port

PEERS = ("litellm",)
_INSTALL_SECONDS = 600
_CONFIGURATION = """\
model_list:
  - model_name: "gpt-5-mini"
    litellm_params: {{model: openai/gpt-5-mini, api_base: "http://127.0.0.1:{port}/v1", api_key: sk-bench}}
litellm_settings: {{telemetry: false, num_retries: 0}}
"""
_ENVIRONMENT = {
    "LITELLM_LOG": "ERROR",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_MODE": "PRODUCTION",
    "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",  # on loopback, for minutes; key checks would only add to its cost
}


class Unavailable(Exception):
    """A peer cannot be had here; the message says why."""


@contextmanager
def litellm(bench: Bench, folder: Path, upstream: Server) -> Iterator[Server]:
    """The LiteLLM proxy with one worker and no callbacks. Raises `Unavailable` when it cannot be installed or started."""
    environment = REPO / "build" / "peers" / "litellm"
    _install(environment, "litellm[proxy]")
    configuration = folder / "litellm.yaml"
    configuration.write_text(_CONFIGURATION.format(port=upstream.port))
    port = free_port()
    command = [str(environment / "bin" / "litellm"), "--config", str(configuration), "--host", "127.0.0.1", "--port", str(port)]
    with bench.peer("litellm", command, port, _ENVIRONMENT) as server:
        yield server


def _install(environment: Path, requirement: str) -> None:
    done = environment / "installed"
    if done.is_file():
        return
    python = str(environment / "bin" / "python")
    try:
        for command in ([sys.executable, "-m", "venv", str(environment)], [python, "-m", "pip", "install", "--quiet", requirement]):
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=_INSTALL_SECONDS)
    except subprocess.CalledProcessError as error:
        raise Unavailable(f"{requirement} could not be installed: {error.stderr.strip()[-300:]}") from None
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{requirement} could not be installed within {_INSTALL_SECONDS} s") from None
    done.touch()
