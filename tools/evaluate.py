"""`make eval`: what a compaction keeps, beside plain baselines, on the corpus or on the session that ships."""

from __future__ import annotations

import sys

from context_compactor.quality import run
from context_compactor.quality.corpus import default_corpus

METHODS = "compactor,truncate-outputs,masking,keep-last"


def main(arguments: list[str]) -> int:
    """Run the evaluation; without a corpus it takes the one session in examples/."""
    if "--method" not in arguments:
        arguments = ["--method", METHODS, *arguments]
    if "--corpus" not in arguments and not default_corpus().is_dir():
        print("no corpus beside the repository: one session of examples/ (CORPUS=folder names another)\n")
        arguments = ["--corpus", "examples", "--sources", "demo_session", *arguments]
    return run.main(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
