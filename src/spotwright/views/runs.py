"""The door to what is said of runs: facts for machines, text for people, both from the same reading of the journal."""

from __future__ import annotations

from spotwright.views.facts import run_view, summary
from spotwright.views.report import report_json, report_text
from spotwright.views.show import runs_text, show_text, summary_text

__all__ = ["report_json", "report_text", "run_view", "runs_text", "show_text", "summary", "summary_text"]
