"""Draws docs/images/demo.svg from the demo's real output."""

from __future__ import annotations

import io
import re
import runpy
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

PICTURE = Path("docs/images/demo.svg")
WIDTH = 128
WEB_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def main() -> None:
    """Run the demo's first half on a recording terminal and save what it showed, without fonts from the web."""
    out = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, highlight=False, markup=False)
    runpy.run_path("examples/demo.py")["show_compaction"](out)
    svg = out.export_svg(title="make demo", theme=MONOKAI, unique_id="demo")
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(WEB_FONTS.sub("", svg), encoding="utf-8")
    print(f"wrote {PICTURE}")


if __name__ == "__main__":
    main()
