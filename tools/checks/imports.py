"""`import context_compactor` loads nothing slow. Seen by what is loaded, not by the clock."""

from __future__ import annotations

import subprocess
import sys
import time

HEAVY = """
aiohttp anthropic asyncio litellm litestar mcp openai opentelemetry procrastinate psycopg rapidfuzz rich
splintr sqlite3 textual tree_sitter typer uvicorn zstandard""".split()


def problems() -> list[str]:
    """Heavy modules that a bare import brings in. Prints what the import costs beside a bare interpreter."""
    loaded = loaded_modules()
    bare, ours = _seconds("pass"), _seconds("import context_compactor")
    print(f"      import context_compactor: {ours / bare:.2f} times a bare interpreter")
    return [f"`import context_compactor` imports {name}" for name in HEAVY if name in loaded]


def loaded_modules() -> set[str]:
    """What a fresh interpreter holds after `import context_compactor`."""
    return set(_run("import context_compactor, sys; print(*sys.modules)").split())


def _run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def _seconds(code: str) -> float:
    times = []
    for _ in range(5):
        start = time.perf_counter()
        _run(code)
        times.append(time.perf_counter() - start)
    return min(times)
