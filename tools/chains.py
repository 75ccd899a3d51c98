"""`make chains`: compact generated histories, and recorded ones, over and over, and check that each result is legal.

    python -m tools.chains --count 10000 [--first 0] [--corpus FOLDER]

Each history goes through one to five compactions, with new messages in between, in one of the two layouts; recorded
conversations go through both. Our own rules and the strict server judge every result. A history comes from its number:
`--first 4711 --count 1` is number 4711 alone. Anything illegal is printed and ends with 1.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from tests.strict.chains import Tally, run_chain, run_recorded

_EVERY = 1_000


def main() -> int:
    """Run the chains that are asked for."""
    parser = argparse.ArgumentParser(prog="tools.chains", description=__doc__)
    parser.add_argument("--count", type=int, default=1_000, help="how many generated histories")
    parser.add_argument("--first", type=int, default=0, help="the number of the first one")
    parser.add_argument("--corpus", type=Path, help="a folder with recorded conversations (*.jsonl.gz)")
    given = parser.parse_args()
    tally = Tally(Counter(), [])
    for done, number in enumerate(range(given.first, given.first + given.count), start=1):
        known = len(tally.wrong)
        run_chain(number, tally)
        _print_all(tally.wrong[known:])
        if done % _EVERY == 0:
            print(f"{done:,} histories, {len(tally.wrong)} illegal", flush=True)
    for path in sorted(given.corpus.rglob("*.jsonl.gz")) if given.corpus else ():
        known = len(tally.wrong)
        run_recorded(path, tally)
        _print_all(tally.wrong[known:])
        print(f"{path.name}: {tally.counts[f'{path.name}: conversations']} conversations", flush=True)
    for what, times in sorted(tally.counts.items()):
        print(f"{times:>8,}  {what}")
    print(f"{given.count:,} generated histories: {len(tally.wrong)} illegal results")
    return 1 if tally.wrong else 0


def _print_all(lines: list[str]) -> None:
    for line in lines:
        print(line.encode("utf-8", "replace").decode(), flush=True)


if __name__ == "__main__":
    sys.exit(main())
