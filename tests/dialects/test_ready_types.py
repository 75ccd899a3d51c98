"""Types that many threads use for the first time at once."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.waiting import PATIENCE

FIRST_USE = """
import sys
from threading import Barrier, Thread
import msgspec
from context_compactor.json_values import prepare_types
from context_compactor.sessions import schemas

sys.setswitchinterval(1e-6)
prepare_types()
given = {"session_id": "a", "appended": 1, "messages": 1, "tokens": 1, "share": 0.1, "level": None}
together = Barrier(16)

def read():
    together.wait()
    msgspec.convert(given, schemas.AppendAnswer)

threads = [Thread(target=read) for _ in range(16)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.mark.parametrize("_", range(3))
def test_types_made_ready_can_be_read_by_many_threads_at_once(_: int):
    ran = subprocess.run(
        [sys.executable, "-c", FIRST_USE], capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert (ran.returncode, ran.stderr) == (0, "")
