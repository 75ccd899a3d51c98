"""What sixty steps in a small window come to in each framework, ours beside its own way of compacting.

`make frameworks` runs the tests. `.venv-frameworks/bin/python -m tools.frameworks` prints the figures, of all that are
in that environment or of those that are named, such as `langchain` or `openai_agents`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from tests.integrations.scenario import HEADER


def main(names: list[str]) -> int:
    """Print a table for each framework; 2 for a name that is none."""
    known = {path.stem.removeprefix("test_"): path for path in Path("tests/integrations").glob("test_*.py")}
    del known["plain_loops"]
    if unknown := set(names) - set(known):
        print(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(sorted(known))}", file=sys.stderr)
        return 2
    for name in names or sorted(known):
        try:
            module = import_module(f"tests.integrations.test_{name}")
        except ImportError as error:
            print(f"{name}: not installed here ({error})\n")
            continue
        print(f"{name}\n\n{HEADER}", *(found.line(way) for way, found in module.compare().items()), "", sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
