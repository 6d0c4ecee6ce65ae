"""The reference of the rules in ``spotwright.linter``: what each finds, why, the fix, and both examples.

The examples are the tests of the rules.
"""

from __future__ import annotations

from collections.abc import Iterator

from scripts.lint_rule_kinds import COLUMNS, holds, rules_of_pods

from spotwright.linter.allowances import ALLOW_RULES
from spotwright.linter.linting import GROUPS, RULES
from spotwright.linter.rule import Rule

__all__ = ["page"]

_INTRODUCTION = """# Rules of lint

`spotwright lint` has {count} rules. An *error* cannot work, a *warning* works until the first interruption or does not do what
was asked for, a *note* is advice. `--fix` fixes rules with a pen (✎). How to use them and switch one off:
[Lint manifests and pipelines](../how-to/lint.md).

Each example is a whole file. Rules about pools need the `spotwright.yaml` beside the example.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([_INTRODUCTION.format(count=len(RULES)), _index(), *_sections(), _kinds(), _comments()])


def _index() -> str:
    lines = ["| rule | severity | finds |", "|---|---|---|"]
    lines += [
        f"| [{rule.id}](#{rule.id}){' ✎' if rule.mends else ''} | {rule.severity} | {rule.title} |"
        for group in GROUPS.values()
        for rule in group
    ]
    return "\n".join(lines) + "\n"


def _sections() -> Iterator[str]:
    for heading, rules in GROUPS.items():
        yield f"## {heading}\n"
        for rule in rules:
            yield _section(rule)


def _section(rule: Rule) -> str:
    is_object = all("apiVersion:" in text for text in (rule.fails, rule.passes))
    language = "python" if rule.is_python else "yaml" if is_object else "yml"
    parts = [f"### {rule.id}", f"**{rule.severity}**: {rule.title}.", rule.why, f"Fix: {rule.fix}"]
    if rule.source:
        parts.append(f"Source: {rule.source}.")
    if rule.config:
        parts += ["With this `spotwright.yaml`:", _block("yaml", rule.config)]
    parts += ["Found:", _block(language, rule.fails), "Sound:", _block(language, rule.passes)]
    return "\n\n".join(parts) + "\n"


def _block(language: str, text: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```"


_OF_KINDS = """## Rules by kind

Rules on pods apply to every kind that lint knows, and to the paths of `--pod-path`. lint made this table from the pod of each
example above in an object of each kind. In empty cells the kind's own fields decide: a TrainJob completes a TrainingRuntime,
and only Jobs demand a restart policy.
"""


def _kinds() -> str:
    lines = [f"| rule | {' | '.join(COLUMNS)} |", "|---" * (len(COLUMNS) + 1) + "|"]
    for rule, beside, pod in rules_of_pods():
        cells = ("✓" if holds(rule, beside, pod, column) else "" for column in COLUMNS)
        lines.append(f"| [{rule.id}](#{rule.id}) | {' | '.join(cells)} |")
    return "\n".join([_OF_KINDS, *lines, ""])


def _comments() -> str:
    lines = [f"| `{name}` | {severity} | {title} |" for name, (severity, title) in ALLOW_RULES.items()]
    return "\n".join(["## Comments that allow findings\n", "| rule | severity | finds |", "|---|---|---|", *lines, ""])
