"""Rules on shells around the work: whose exit code the container has, and which process gets SIGTERM.

A script is split into commands; one with compound commands, functions or here-documents is not judged. Sources: POSIX, "Shell
Command Language" (2.9.2 Pipelines, 2.9.3 Lists; ``wait`` without a process is 0); pid_namespaces(7): process 1 ignores signals
for which it has no handler; conda/conda#11420.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from spotwright.linter.rule import ON_SPOT, Checks, Problem, Rule, Severity, job
from spotwright.linter.settings import Settings
from spotwright.linter.subjects import Container, Pods
from spotwright.placing.pods import PodRole

__all__ = ["RULES", "script_of"]

_SHELLS = frozenset({"ash", "bash", "dash", "ksh", "sh", "zsh"})
_WRAPPERS = frozenset({"tini", "dumb-init", "--", "env", "exec", "sudo", "nohup", "stdbuf", "-s", "-g"})
_COMPOUND = re.compile(r"<<|\(\)|(?:^|[;&|\n({])\s*(?:if|for|while|until|case|select|function|\{|\()(?:\s|$)|`|\$\(")
_FILTERS = frozenset(
    {"awk", "cat", "egrep", "grep", "head", "logger", "rotatelogs", "sed", "sort", "tail", "tee", "ts"}
)
_TRIVIAL = frozenset(
    {"", ":", "date", "df", "du", "echo", "free", "ls", "nvidia-smi", "printf", "sleep", "sync", "touch", "true"}
)
_ENDLESS = re.compile(r"sleep\s+(?:inf|infinity|\d{6,})|tail\s+-f\s+/dev/null")
_PREPARES = frozenset(
    {"cd", "chmod", "export", "mkdir", "pip", "pip3", "pwd", "set", "source", ".", "ulimit", "umask", "uv", "apt-get"}
)
_LONGEST = 50_000  # characters


class _Command(NamedTuple):
    """A pipeline of a script: its stages, and the operator behind it; a line break is read as ``;``, and the last has none."""

    stages: tuple[str, ...]
    then: str

    @property
    def name(self) -> str:
        return _name(self.stages[0])


def _name(stage: str) -> str:
    words = [word for word in stage.split() if not re.match(r"\w+=", word)]
    while words and words[0] in _WRAPPERS:
        words.pop(0)
    return words[0].rpartition("/")[2] if words else ""


def script_of(container: Container) -> tuple[str, str] | None:
    """The shell script that a container runs, and the options of its shell; ``None`` if it runs none."""
    words = [word for word in container.words if word not in _WRAPPERS]
    if not words or words[0].rpartition("/")[2] not in _SHELLS:
        return None
    for index, word in enumerate(words[1:], 1):
        if not word.startswith("-") and word not in ("pipefail", "errexit"):
            return None
        if re.fullmatch(r"-[a-z]*c[a-z]*", word):
            following = next((one for one in words[index + 1 :] if not re.match(r"-[a-zA-Z]|pipefail$", one)), None)
            return None if following is None else (following[:_LONGEST], " ".join(words[1 : index + 1]))
    return None


def _commands(script: str) -> list[_Command] | None:
    """The commands of a script in their order; ``None`` if it has more than lists and pipelines."""
    script = re.sub(r"\\\n", " ", script)
    if _COMPOUND.search(script):
        return None
    parts = re.findall(
        r"(?:'[^']*'|\"(?:\\.|[^\"])*\"|\\.|[0-9]?>&[0-9-]|&>>?|>\||[^'\"\\;&|\n])+|&&|\|\||\|&|[;&|\n]", script
    )
    if sum(map(len, parts)) != len(script):
        return None  # a quote that does not end
    commands: list[_Command] = []
    stages: list[str] = []
    for part in [*parts, ""]:
        if part in ("|", "|&"):
            continue
        if part in ("&&", "||", "&", ";", "\n", ""):
            if stages:
                commands.append(_Command(tuple(stages), ";" if part == "\n" else part))
            stages = []
        elif not part.strip().startswith("#") and part.strip():
            stages.append(part.strip())
    return commands


def _work(commands: Sequence[_Command]) -> int | None:
    """The index of the last command that does work."""
    names = [one.name for one in commands]
    known = _TRIVIAL | _PREPARES | {"exit", "trap", "wait", "kill"}
    return next((index for index in range(len(names) - 1, -1, -1) if names[index] not in known), None)


def _is_set(commands: Sequence[_Command], options: str, short: str, long: str) -> bool:
    text = " ; ".join([options, *(one.stages[0] for one in commands if one.name == "set")])
    return re.search(rf"(?:^|\s)-[a-z]*{short}|{long}" if short else long, text) is not None


def _swallowed(script: str, options: str) -> str:
    """Whose exit code the script has instead of that of its work, as a clause; empty if the work's, or not known."""
    commands = _commands(script)
    at = None if commands is None else _work(commands)
    if (
        commands is None
        or at is None
        or re.search(r"\$\?|PIPESTATUS|\$\{?(?:rc|ret|status|exit_?code)", script, re.IGNORECASE)
    ):
        return ""
    work, after = commands[at], commands[at + 1 :]
    last = _name(work.stages[-1])
    if len(work.stages) > 1 and last in _FILTERS and not _is_set(commands, options, "", "pipefail"):
        return f"it has the exit code of {last} behind the pipe"
    if work.then == "||" and after and (after[0].name in _TRIVIAL or re.fullmatch(r"exit\s+0", after[0].stages[0])):
        return f"|| {after[0].stages[0].split(maxsplit=1)[0]} makes every end a success"
    if work.then == "&" and after and after[-1].stages[0] == "wait":
        return "wait without a process is 0, whatever the work ends with"
    if work.then != ";" or not after or any(one.name not in _TRIVIAL for one in after):
        return ""
    if _ENDLESS.search(after[-1].stages[0]):
        return f"{after[-1].stages[0]} keeps the container when the work has ended"
    return "" if _is_set(commands, options, "e", "errexit") else f"it has the exit code of {after[-1].name} behind it"


def _swallows(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    """A shell that ends with 0 whatever its work's exit code, or that never ends."""
    for container, script, options in _scripts(pods):
        clause = _swallowed(script, options)
        if clause:
            yield Problem(_path(container), f"{pods.label} does not end as its work does: {clause}")


def _scripts(pods: Pods) -> Iterator[tuple[Container, str, str]]:
    for container in pods.containers if pods.on_spot and pods.duty in (PodRole.WORKER, PodRole.COORDINATOR) else ():
        found = script_of(container)
        if found is not None:
            yield container, *found


def _path(container: Container) -> tuple[str | int, ...]:
    return (*container.path, "args" if container.value.get("args") else "command")


_HOLDS_SIGTERM = re.compile(r"(?:conda|mamba)\s+run|(?:npm|yarn|pnpm)\s+(?:run|start)")


def _deaf(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    """A process 1 that does not forward SIGTERM to the work."""
    if not pods.on_spot or not pods.is_work or (pods.owner is not None and pods.owner.record.passes_signals):
        return
    for container in pods.containers:
        found = script_of(container)
        script = " ".join(container.words) if found is None else found[0]
        if "trap " in script:
            continue
        runner = _HOLDS_SIGTERM.match(script.lstrip().removeprefix("exec ").lstrip())
        commands = _commands(script) if found is not None else None
        waits = commands is not None and any(one.then == "&" for one in commands) and commands[-1].name == "wait"
        if runner or waits:
            what = runner[0] if runner else "a shell that waits for a background process"
            yield Problem(
                _path(container),
                f"{pods.label}: {what} passes no SIGTERM on, so the work is killed without a chance to save",
            )


def _run(script: str) -> str:
    return f"command: [bash, -c, '{script}']\n"


RULES = (
    Rule(
        id="exit-code-swallowed",
        severity=Severity.WARNING,
        title="A shell whose exit code is not that of the work",
        why="Controllers decide by the exit code of the container. If it is 0 after a failure, the pod has succeeded and "
        "its work is not done; a container that never ends keeps its node.",
        fix="Let the work be the last command, with set -e, and set -o pipefail before a pipe.",
        fails=job(ON_SPOT, container=_run("train 2>&1 | tee /logs/train.txt")),
        passes=job(ON_SPOT, container=_run("set -o pipefail; train 2>&1 | tee /logs/train.txt")),
        checks=Checks(pods=_swallows),
        source='POSIX, "Shell Command Language", 2.9 Shell Commands',
    ),
    Rule(
        id="sigterm-not-passed-on",
        severity=Severity.WARNING,
        title="Process 1 passes no SIGTERM on to the work",
        why="The kubelet sends SIGTERM to process 1 of the container alone. A shell that waits in the background, or a runner "
        "that does not pass it on, leaves the work unaware of the interruption until it is killed.",
        fix="Start the work with exec, or trap TERM, kill the work with it and wait; do not use conda run.",
        fails=job(ON_SPOT, container=_run("conda run -n env python train.py")),
        passes=job(ON_SPOT, container=_run("source activate env && exec python train.py")),
        checks=Checks(pods=_deaf),
        source="pid_namespaces(7); conda/conda#11420",
    ),
)
"""The rules of this module."""
