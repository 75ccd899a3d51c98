"""Every check that a linter cannot do. `python -m tools.checks.main` prints what is wrong and where."""

from __future__ import annotations

import sys

from tools.checks import docs, exports, imports, names, size, tracked, waits

CHECKS = {
    "exports are documented": exports.problems,
    "docs match the code": docs.problems,
    "import stays light": imports.problems,
    "names are from the glossary": names.problems,
    "tracked files name no machine or registry": tracked.problems,
    "tests wait for states alone": waits.problems,
    "the package is no larger than it was": size.problems,
}


def main() -> int:
    """Run all checks; 1 when any found something."""
    failed = False
    for promise, problems in CHECKS.items():
        found = problems()
        failed |= bool(found)
        print(f"{'FAIL' if found else 'ok  '}  {promise}")
        for problem in found:
            print(f"        {problem}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
