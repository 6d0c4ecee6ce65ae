"""``spot.plan``, ``spot.lint`` and ``spot.explain``: the commands of these names for scripts and notebooks.

They read and compute, without starting or changing anything. The command ``plan`` uses the functions here; the commands
``lint`` and ``explain`` take several files and share the packages below.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spotwright import config as configuration
from spotwright.config import Config
from spotwright.errors import InputError, SpotwrightError, UnknownRun
from spotwright.records.state_folder import nearest_state
from spotwright.runs.run_options import ConfigSource, PlanOptions, config_option

if TYPE_CHECKING:
    from spotwright.forecast.forecast import Forecast, Question
    from spotwright.forecast.markets import Source
    from spotwright.forecast.tasks import Durations
    from spotwright.kfp.compiled import Compiled
    from spotwright.placing.documents import Document
    from spotwright.records.reader import RunReader
    from spotwright.runs.planning import PlannedRun

__all__ = [
    "DEFAULT_MARKETS",
    "Answer",
    "deadline_of",
    "explain",
    "forecast_of",
    "known_durations",
    "lint",
    "pipeline_yaml",
    "plan",
    "read_share",
    "spot_source",
]

DEFAULT_MARKETS = 1000
_LOG = logging.getLogger(__name__)
_RATE = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*(%?)\s*(?:/\s*h)?\s*")
_SHARE = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*(%?)\s*")
_DURATION_FILES = (".yaml", ".yml", ".json")
_OBJECT, _PIPELINE = "object", "pipeline"


class Answer:
    """A command's answer: its text when printed and in a notebook, ``json()`` for programs."""

    def __init__(self, text: str, facts: Mapping[str, Any]) -> None:
        self._text, self._facts = text, dict(facts)

    def json(self) -> dict[str, Any]:
        """The same facts as in the command's ``--json``."""
        return self._facts

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        return f"<pre style='color:inherit;background:none'>{escape(self._text)}</pre>"


# -- plan


def plan(  # noqa: PLR0913 (each is a separate option)
    pipeline: Callable[..., Any] | str | Path,
    arguments: Mapping[str, Any] | None = None,
    *,
    config: ConfigSource | None = None,
    deadline: str | None = None,
    traces: Sequence[str] = (),
    rate: str | float | None = None,
    durations: str | Path | None = None,
    markets: int = DEFAULT_MARKETS,
    certainty: str | float = "99%",
    seed: int = 1,
    policy: Mapping[str, Any] | None = None,
    state: str | Path | None = None,
) -> Answer:
    """Forecast the cost and the end of a pipeline's run, policy by policy, over many markets, without running tasks.

    ``pipeline``, ``arguments``, ``config`` and ``policy`` are as for :func:`run`; arguments may be missing. ``deadline`` is a
    duration from the start (``"8h"``) or a time with its zone. ``traces`` are recordings to draw markets from, each ``"FILE"``
    or ``"POOL=FILE"``; ``rate`` is the rate of lost nodes instead (``"10%/h"``). ``durations`` is a file, or a run of the
    folder ``state`` that measured them, by default the last one of this pipeline there. ``markets`` is their number,
    ``certainty`` the required certainty of the plan, as a share.

    Raises :class:`InputError` for anything wrong.
    """
    from spotwright.forecast.forecast import Question
    from spotwright.forecast.report import forecast_json, forecast_text, pipeline_words
    from spotwright.kfp.loader import compile_function, load
    from spotwright.runs.planning import plan_run

    if markets < 1:
        raise InputError(f"markets {markets}: expected a number from 1")
    if seed < 0:
        raise InputError(f"seed {seed}: expected a whole number from 0")
    try:
        source = spot_source(traces, None if rate is None else str(rate))
        share = read_share("--certainty", str(certainty))
    except InputError as error:
        raise InputError(str(error).removeprefix("--")) from error
    compiled = load(Path(pipeline)) if isinstance(pipeline, str | Path) else compile_function(pipeline)
    named = None if durations is None else str(durations)
    known = known_durations(
        named, nearest_state() if state is None else Path(state), compiled.pipeline, option="durations"
    )
    layer = dict(policy or {}) | ({} if deadline is None else {"deadline": deadline})
    options = PlanOptions(arguments=dict(arguments or {}), config=config_option(config), policy=layer)
    planned = plan_run(compiled, options, partly=True)
    name = str(pipeline) if isinstance(pipeline, str | Path) else planned.stored.plan.graph.name
    seconds = deadline_of(planned, time.time())
    question = Question(planned.stored.plan.graph.name, seconds, source, markets, seed, share)
    forecast = forecast_of(planned, known, question)
    texts = [
        f"{key}={value if isinstance(value, str) else json.dumps(value, default=str)}"
        for key, value in options.arguments.items()
    ]
    words = pipeline_words(name, texts, config=str(config) if isinstance(config, str | Path) else None)
    return Answer(forecast_text(forecast, words), forecast_json(forecast, words))


def forecast_of(planned: PlannedRun, durations: Durations, question: Question) -> Forecast:
    """The forecast on the configured pools, instead of the simulated ones of a local run's plan."""
    from spotwright.engine.plan import Plan
    from spotwright.forecast.forecast import make
    from spotwright.forecast.tasks import tasks_of

    config = planned.stored.config
    plan = Plan(planned.stored.plan.graph, config, planned.stored.plan.flags)
    forecast = make(question, tasks_of(plan, durations, planned.arguments), config.pools, config.currency, time.time())
    return forecast._replace(notes=(*planned.notes, *forecast.notes))


def spot_source(traces: Sequence[str], rate: str | None) -> Source:
    """The market that recordings (``[POOL=]FILE``) or a rate describe.

    Raises :class:`InputError` for both a rate and a recording, and for wrong ones.
    """
    from spotwright.config import load_trace
    from spotwright.forecast.markets import Source

    if traces and rate is not None:
        raise InputError("--trace and --rate both say how spot comes and goes: name one of them")
    common: dict[str, Any] = {}
    own: dict[str, Any] = {}
    for text in traces:
        pool, equals, file = text.partition("=")
        if equals and not Path(text).exists():
            own[pool] = load_trace(file)
        else:
            common[Path(text).stem] = load_trace(text)
    return Source(common, own, None if rate is None else _rate(rate))


def _rate(text: str) -> float:
    """Losses in an hour with spot: ``10%/h`` and ``0.1/h`` are 0.1."""
    match = _RATE.fullmatch(text)
    if match is None:
        raise InputError(f"--rate {text!r}: expected losses an hour of spot, such as 10%/h or 0.1/h")
    return float(match[1]) / (100.0 if match[2] else 1.0)


def read_share(option: str, text: str) -> float:
    """A share above 0 and below 1, also in percent. Raises :class:`InputError`, which begins with the option."""
    match = _SHARE.fullmatch(text)
    value = float(match[1]) / (100.0 if match[2] else 1.0) if match is not None else 0.0
    if not 0.0 < value < 1.0:
        raise InputError(f"{option} {text!r}: expected a share above 0 and below 100%, such as 99%")
    return value


_NEWEST = 50  # runs that are searched for durations


def known_durations(text: str | None, state: Path, pipeline: str, option: str = "--durations") -> Durations:
    """The durations from a file or a run of the state folder; without a text, from the last run of the pipeline there.

    Raises :class:`InputError` for a text that is neither.
    """
    from spotwright.forecast.tasks import measured, measured_last, read_durations

    if text is None:
        return measured_last(pipeline, _newest_runs(state))
    if Path(text).suffix in _DURATION_FILES or Path(text).is_file():
        return read_durations(Path(text))
    from spotwright.records.reader import RunReader
    from spotwright.records.state_folder import StateFolder
    from spotwright.runs.bodies import is_alive

    try:
        folder = StateFolder.existing(state).find(text)
    except UnknownRun as error:
        raise InputError(f"{option} {text}: neither a file nor a run: {error}") from error
    return measured(RunReader(folder, is_alive).state, folder.name)


def _newest_runs(state: Path) -> Iterator[RunReader]:
    """The newest readable runs of a state folder, newest first."""
    from spotwright.records.reader import RunReader
    from spotwright.records.state_folder import StateFolder
    from spotwright.runs.bodies import is_alive

    for folder in reversed(StateFolder.existing(state).runs()[-_NEWEST:]):
        try:
            yield RunReader(folder, is_alive)
        except SpotwrightError as error:
            _LOG.warning("run %s is left out: %s", folder.name, error)


def deadline_of(planned: PlannedRun, now: float) -> float | None:
    """The deadline in seconds from a start now: the plan's by its flags, else the latest of a task.

    Raises :class:`InputError` for one that has passed.
    """
    found = [task.policy.deadline for task in planned.stored.plan.every_task() if task.policy.deadline is not None]
    if not found:
        return None
    seconds = max(each.moment(now) for each in found) - now
    if seconds <= 0:
        raise InputError(f"the deadline passed {-seconds / 3600:.1f} h ago: name a later one")
    return seconds


# -- lint and explain


def lint(source: Any, config: Config | ConfigSource | None = None, *, beside: Sequence[Any] = ()) -> Answer:
    """Find what is unsafe on spot in a manifest, a compiled pipeline, or a pipeline in Python, without running or changing it.

    ``source`` is the path of a file, an object (a dict, or a model as for :func:`place`), or a function with ``@dsl.pipeline``.
    ``config`` is as for :func:`place`; by default the file beside the source or in the current folder, if it exists. ``beside``
    are objects, or paths of files, that the source refers to or that apply to its pods: they are not linted.
    ``json()["findings"]`` is empty without findings.

    Raises :class:`InputError` for an unreadable source.
    """
    from spotwright.linter.formats import LintReport, lint_json, report_lines
    from spotwright.linter.linting import lint_text, refuse_unknown
    from spotwright.linter.settings import settings_of

    text, name = _read(source)
    found = _config_of(source, config)
    refuse_unknown(found)
    facts = tuple(_documents(beside))
    report = LintReport([lint_text(text, name, settings_of(found, beside=facts))])
    return Answer("\n".join(report_lines(report)), lint_json(report))


def explain(
    source: Any,
    config: Config | ConfigSource | None = None,
    *,
    beside: Sequence[Any] = (),
    replace_retries: bool = False,
    pod_paths: Sequence[str] = (),
) -> Answer:
    """Explain where each role or task may run, the source of each policy value, and the effect of an interruption.

    ``source`` and ``config`` are as for :func:`lint`, but a path of a ``.py`` file is compiled. ``beside`` are objects or paths
    of files that the source refers to; ``replace_retries`` and ``pod_paths`` are as for :func:`place`.

    Raises :class:`InputError` for a source that cannot be placed.
    """
    from spotwright.kinds.unknown import read_pod_path
    from spotwright.manifests.files import place_texts, unmatched_patterns
    from spotwright.placing.context import PlaceOptions
    from spotwright.placing.documents import References
    from spotwright.views.explanation import explanation_json, explanation_text

    is_python = callable(source) or (isinstance(source, str | Path) and Path(source).suffix == ".py")
    text, name = _read(source, compiled=True)
    found = _config_of(source, config)
    references = References(list(_documents(beside)))
    options = PlaceOptions(replace_retries, tuple(map(read_pod_path, pod_paths)), only_explain=True)
    (placed,) = place_texts([(name, text)], found, references, options, {})
    placed.has_lines = not is_python
    placed.findings += unmatched_patterns(found, placed.roles)
    placements = {name: placed}
    return Answer(explanation_text(placements, found), explanation_json(placements, found))


def _documents(sources: Iterable[Any]) -> Iterator[Document]:
    from spotwright.placing.documents import parse

    return (document for source in sources for document in parse(*_read(source)))


def _config_of(source: Any, config: Config | ConfigSource | None) -> Config:
    if isinstance(config, Config):
        return config
    if isinstance(config, Mapping):
        return configuration.from_mapping(config)
    return configuration.find(Path(source) if isinstance(source, str | Path) else Path.cwd(), config)


def _read(source: Any, *, compiled: bool = False) -> tuple[str, str]:
    """The text of a source and its name in messages; with ``compiled``, a Python file is compiled."""
    from spotwright.config.document import read_input
    from spotwright.manifests.python_api import object_text

    if isinstance(source, str | Path):
        path = Path(source)
        if compiled and path.suffix == ".py":
            from spotwright.kfp.loader import load

            return pipeline_yaml(load(path)), str(path)
        return read_input(path), str(path)
    if callable(source) and not isinstance(source, type):
        from spotwright.kfp.loader import compile_function

        return pipeline_yaml(compile_function(source)), _PIPELINE
    return object_text(source), _OBJECT


def pipeline_yaml(compiled: Compiled) -> str:
    """A compiled pipeline as KFP's YAML: one document, and a second one if it has platform settings.

    Source code is written as literal blocks, and equal parts without aliases.
    """
    import yaml

    base = yaml.CSafeDumper if yaml.__with_libyaml__ else yaml.SafeDumper
    dumper: Any = type("_Dumper", (base,), {"ignore_aliases": lambda _self, _data: True})
    dumper.add_representer(str, _represent_text)
    documents: list[Any] = [compiled.ir]
    if compiled.platform:
        documents.append({"platforms": compiled.platform})
    return str(yaml.dump_all(documents, Dumper=dumper, sort_keys=True, allow_unicode=True, width=10**6))


def _represent_text(dumper: Any, value: str) -> Any:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)
