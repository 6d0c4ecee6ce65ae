"""From a file, a text or nothing to a :class:`Config`: the doors of this package."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from spotwright.clouds import built_in_pools
from spotwright.config.document import MAX_BYTES, read
from spotwright.config.fields import TARGET, TOP, VERSION, read_fields
from spotwright.config.files import read_text
from spotwright.config.nodes import Scalar, Table
from spotwright.config.policies import Policies, check_policies, read_policies
from spotwright.config.pools import read_pools
from spotwright.config.problems import Place, Problems
from spotwright.config.settings import BUILT_IN_NAME, Config
from spotwright.errors import ConfigError
from spotwright.model.pools import Pool
from spotwright.model.quantities import format_bytes

__all__ = ["FILE_NAME", "built_in", "find", "load", "parse"]

FILE_NAME = "spotwright.yaml"


def find(pipeline_path: str | Path, explicit: str | Path | None = None) -> Config:
    """The configuration of a pipeline: the one that was named, else ``spotwright.yaml`` beside the pipeline, else the built-in.

    ``pipeline_path`` may be a folder (a notebook's). Raises :class:`ConfigError`; a file that is there is never passed over.
    """
    if explicit is not None:
        return load(explicit)
    path = Path(pipeline_path)
    folder = path if path.is_dir() else path.parent
    if os.path.lexists(folder / FILE_NAME):
        return load(folder / FILE_NAME)
    misnamed = folder / "spotwright.yml"
    if os.path.lexists(misnamed):
        raise ConfigError(f"{misnamed}: this name is not read: rename it to {FILE_NAME}, or name it with --config")
    return built_in()


def load(path: str | Path) -> Config:
    """Read and check a configuration file. Raises :class:`ConfigError` with everything that is wrong in it."""
    return parse(read_text(path, MAX_BYTES), str(path))


def built_in() -> Config:
    """The configuration where there is no file: the built-in pools, used with ``spot: prefer``; its ``note`` says so."""
    config = parse(_built_in_text(built_in_pools()), BUILT_IN_NAME)
    return replace(config, note=f"no {FILE_NAME}: using the built-in pools {_listed(config.pools)}, spot preferred")


def parse(text: str, name: str | Path = FILE_NAME, *, traces_exist: bool = True) -> Config:
    """Read and check the text of a configuration; ``name`` is how messages call it, and traces are looked for beside it.

    A run that stored its traces reads its stored text with ``traces_exist=False``: the files may be gone by then.

    Raises :class:`ConfigError`: a line for each problem, ``file:line: field: what was expected, what was found``, at most ten.
    """
    problems = Problems(str(name))
    root, place = read(text, problems), Place(problems)
    _refuse_newer(root, place)
    values = read_fields(root, place, TOP)
    path = BUILT_IN_NAME if str(name) == BUILT_IN_NAME else str(Path(name).absolute())
    target = read_fields(values["target"], place.key("target"), TARGET) if values["target"] else {}
    pools, note = _pools(values["pools"], place.key("pools"), Path(path).parent, traces_exist=traces_exist)
    policies = read_policies(values["policy"], place.key("policy")) if values["policy"] else Policies()
    problems.raise_any()
    check_policies(policies, values["policy"], pools, place.key("policy"))
    problems.raise_any()
    if note and policies.default is None:
        policies = policies._replace(default=built_in().policy_default)
    return Config(
        version=VERSION,
        currency=values["currency"],
        target={key: value for key, value in target.items() if value is not None},
        pools=pools,
        policy_default=policies.default,
        policy_tasks=policies.tasks,
        path=path,
        text=text,
        note=note,
        secrets=values["secrets"],
        config_maps=values["config_maps"],
    )


def _refuse_newer(root: Table, place: Place) -> None:
    """A file of a newer format gets this message alone: whatever else looks wrong in it may be right there."""
    entry = root.entries.get("version")
    if (
        entry is not None
        and isinstance(entry.node, Scalar)
        and entry.node.kind == "int"
        and int(entry.node.text) > VERSION
    ):
        text = (
            f"the format is of version {entry.node.text}, this Spotwright reads version {VERSION}: upgrade Spotwright"
        )
        raise place.problems.stop(entry.line, "version", text)


def _pools(node: Table | None, place: Place, folder: Path, *, traces_exist: bool) -> tuple[Mapping[str, Pool], str]:
    """The pools of the file, or the built-in ones with a note."""
    if node is not None:
        return read_pools(node, place, folder, traces_exist=traces_exist), ""
    pools = built_in_pools()
    return pools, f"{place.problems.name} names no pools: using the built-in ones, {_listed(pools)}"


def _listed(pools: Mapping[str, Pool]) -> str:
    return ", ".join(f"{pool.name} ({pool.capacity})" for pool in pools.values())


def _built_in_text(pools: Mapping[str, Pool]) -> str:
    """The built-in pools as a file: what a run stores, so that it can be resumed by a Spotwright with other built-in pools."""
    return "\n".join(
        ["version: 1", "pools:", *(line for pool in pools.values() for line in _pool_lines(pool)), *_PREFER, ""]
    )


_PREFER = ("policy:", "  default: {spot: prefer}")


def _pool_lines(pool: Pool) -> Iterator[str]:
    yield f"  {pool.name}:"
    yield f"    capacity: {pool.capacity}"
    yield f"    node: {{{', '.join(_resource(*item) for item in (pool.node or {}).items())}}}"
    yield f"    max_nodes: {pool.max_nodes}"
    yield "    labels:"
    for key, value in pool.labels.items():
        yield f"      {key}: {json.dumps(value)}"
    yield f"    notice: {pool.notice:g}s"
    yield f"    simulate: {{boot: {pool.simulate.boot:g}s}}"


def _resource(name: str, amount: int) -> str:
    if name == "cpu":
        return f"cpu: {amount}m"
    return f"{name}: {format_bytes(amount) if name == 'memory' else amount}"
