"""Every check that a linter cannot do. `python -m tools.check` prints what is wrong and where."""

from __future__ import annotations

import sys

from tools import check_docs, check_exports, check_imports, check_names, check_tracked, check_waits

CHECKS = {
    "exports are documented": check_exports.problems,
    "docs match the code": check_docs.problems,
    "import stays light": check_imports.problems,
    "names are from the glossary": check_names.problems,
    "tracked files name no machine or registry": check_tracked.problems,
    "tests wait for states alone": check_waits.problems,
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
