"""The Node.js that playwright brings, for tests of code that runs inside coding agents."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import playwright

from tests.waiting import PATIENCE

NODE = Path(playwright.__file__).parent / "driver" / "node"


def run_node(script: Path, *arguments: str, **env: str) -> Any:
    """Run a module; the JSON that it prints last."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("COMPACTOR_", "NODE_"))}
    ran = subprocess.run(
        [NODE, script, *arguments], capture_output=True, text=True, env=kept | env, check=False, timeout=PATIENCE
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.strip().splitlines()[-1])
