"""Follows docs/tutorial.md and writes what its commands print into it, where that is not what the page shows.

For use after the wording of a view has changed; a test fails until the page is true again. What a page leaves out with
``...`` is left out again: the progress of a run, and lines that name folders.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "tutorial.md"


def main() -> None:
    """Follow the page once."""
    sys.path.insert(0, str(ROOT))
    from tests.docs.pages import same, walk

    text = PAGE.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        for step, printed in walk(PAGE, Path(folder)):
            if not same(step.output, printed):
                text = text.replace(
                    f"$ {step.command}\n{step.output}", f"$ {step.command}\n{shortened(step.command, printed)}"
                )
                print(f"$ {step.command}: written")
    PAGE.write_text(text, encoding="utf-8")


def shortened(command: str, printed: str) -> str:
    """What a page shows of a command's output."""
    if command.startswith("spotwright run"):
        if "Outputs\n" not in printed:
            sys.exit(f"$ {command}\n{printed}")
        return "...\n" + printed[printed.index("Outputs\n") :]
    if command.startswith("spotwright logs"):
        return "".join(printed.splitlines(keepends=True)[:3]) + "...\n"
    return re.sub(r"(^  (?:started|argument) .*\n)+", "  ...\n", printed, flags=re.MULTILINE)


if __name__ == "__main__":
    main()
