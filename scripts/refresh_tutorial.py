"""Follow docs/tutorial.md and write what its commands print into it, where the page shows something else.

For use after the wording of a view has changed; a test fails until the page is true again. Times and amounts differ from
run to run and are left as they are; with ``--all`` they are written too, for use after a change of prices. What a page leaves
out with ``...`` is left out again: the progress of a run, and lines that name folders.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "tutorial.md"


def main() -> None:
    """Follow the page once, and write it anew where it is behind."""
    sys.path.insert(0, str(ROOT))
    from tests.docs.pages import same, walk

    text = PAGE.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        for step, printed in walk(PAGE, Path(folder)):
            if "--all" in sys.argv[1:] or not same(step.output, printed):
                text = text.replace(
                    f"$ {step.command}\n{step.output}", f"$ {step.command}\n{shortened(step.command, printed)}"
                )
                print(f"$ {step.command}: written")
    PAGE.write_text(text, encoding="utf-8")


def shortened(command: str, printed: str) -> str:
    """The part of a command's output that the page shows."""
    if command.startswith("spotwright run"):
        if "Outputs\n" not in printed:
            sys.exit(f"$ {command}\n{printed}")
        return "...\n" + printed[printed.index("Outputs\n") :]
    if command.startswith("spotwright logs"):
        return "".join(printed.splitlines(keepends=True)[:3]) + "...\n"
    printed = re.sub(r"(?<=^Artifacts\n)(  .*\n)+", "  ...\n", printed, flags=re.MULTILINE)
    return re.sub(r"(^  (?:started|argument) .*\n)+", "  ...\n", printed, flags=re.MULTILINE)


if __name__ == "__main__":
    main()
