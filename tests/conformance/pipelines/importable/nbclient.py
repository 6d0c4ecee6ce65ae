"""As much of Jupyter's ``nbclient`` as a notebook component uses, without a kernel: cells run in an interpreter of their own."""

import subprocess
import sys
from typing import Any


class NotebookClient:
    def __init__(self, notebook: Any, **_options: object) -> None:
        self._notebook = notebook

    def process_message(self, message: Any, _cell: Any, _number: int) -> Any:
        return message

    def execute(self, cwd: str) -> None:
        """Run the cells one after the other, and tell what they print."""
        cells = "\n".join("".join(cell["source"]) for cell in self._notebook.cells)
        done = subprocess.run([sys.executable, "-c", cells], cwd=cwd, stdout=subprocess.PIPE, text=True, check=True)
        self.process_message({"output_type": "stream", "text": done.stdout}, self._notebook.cells[-1], 0)
