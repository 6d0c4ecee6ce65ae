"""Makes a :class:`Config`, pools and policies, from a file, from a text, or from the built-in pools."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from spotwright.clouds.provider import Provider
from spotwright.clouds.provider_records import PROVIDERS
from spotwright.clouds.providers import built_in_pools
from spotwright.config.document import MAX_BYTES, Location, ObjectSources, Problems, Scalar, Table, read, read_text
from spotwright.config.fields import LINT, TARGET, TOP, VERSION, read_fields
from spotwright.config.sections import Policies, check_policies, read_policies, read_pools
from spotwright.errors import ConfigError
from spotwright.model.policy import BUILT_IN, Layer
from spotwright.model.pools import GENERIC, Pool, PriceSource, Quote
from spotwright.model.quantities import format_bytes
from spotwright.model.task_names import matches

__all__ = [
    "BUILT_IN_NAME",
    "FILE_NAME",
    "MAPPING_NAME",
    "Config",
    "built_in",
    "files_named_in",
    "find",
    "from_mapping",
    "load",
    "parse",
    "require_pools",
]


BUILT_IN_NAME = "built-in configuration"
"""Path of the configuration that is used without a file."""

MAPPING_NAME = "<config>"
"""File name of a configuration that was given as a mapping in Python; its folder is the working directory."""


@dataclass(frozen=True, slots=True)
class Config:
    """One checked ``spotwright.yaml``. ``parse(config.text, config.path)`` returns an equal one.

    ``version`` is the format's. ``pools``, and ``policy_tasks`` (patterns with their layers), keep the order of the file.
    ``path`` is the absolute path of the file, or a name without one; ``text`` is the text that was read, stored with every run.
    ``note`` is a sentence for the user if the built-in pools are used, else empty; ``found_above`` names the file if it is in a
    folder above the pipeline's. ``lint_off`` are the disabled lint rules, each with its reason. ``secrets`` and ``config_maps``
    hold the sources of their values.
    """

    version: int
    currency: str
    target: Mapping[str, str]
    pools: Mapping[str, Pool]
    policy_default: Layer | None
    policy_tasks: tuple[tuple[str, Layer], ...]
    path: str
    text: str = field(repr=False)
    note: str = field(default="", compare=False)
    found_above: str = field(default="", compare=False)
    lint_off: Mapping[str, str] = field(default_factory=dict)
    secrets: ObjectSources = field(default_factory=dict)
    config_maps: ObjectSources = field(default_factory=dict)

    @property
    def is_built_in(self) -> bool:
        """True without a file: the policy is then not the user's."""
        return self.path == BUILT_IN_NAME

    @property
    def is_file(self) -> bool:
        """True if it was read from a file, and so can be read again."""
        return not self.is_built_in and Path(self.path).name != MAPPING_NAME

    @property
    def notes(self) -> tuple[str, ...]:
        """The sentences for the user about where pools and policy come from."""
        return tuple(filter(None, (self.found_above, self.note)))

    @property
    def default_ladder(self) -> tuple[str, ...]:
        """The ladder of ``policy.default``; empty without one."""
        default = self.policy_default
        return tuple((default.values.get("ladder") if default is not None else None) or ())

    @property
    def longest_grace_period(self) -> float:
        """The longest grace period of any policy, in seconds; at least the default."""
        layers = (BUILT_IN, self.policy_default, *(layer for _, layer in self.policy_tasks))
        return max(float(layer.values.get("grace_period", 0.0)) for layer in layers if layer is not None)

    def layers_for(self, *task_paths: str) -> tuple[tuple[Layer, ...], tuple[Layer, ...]]:
        """Return the layers of ``policy.default``, and the layers of ``policy.tasks`` that match a task's path, weakest first.

        A task in a loop has two paths: ``loop/train-3``, and ``loop/train`` as in the pipeline. The layers are two groups because
        the pipeline's own settings rank between them.
        """
        default = () if self.policy_default is None else (self.policy_default,)
        matching = (layer for pattern, layer in self.policy_tasks if matches(pattern, *task_paths))
        return default, tuple(matching)


FILE_NAME = "spotwright.yaml"


def find(pipeline_path: str | Path, explicit: str | Path | None = None) -> Config:
    """Return the configuration of a pipeline: the named file, else the nearest ``spotwright.yaml``, else the built-in one.

    The nearest file is the one beside the pipeline, or in a folder above it up to the root of the repository (the folder that
    holds ``.git``). Without a repository the pipeline's own folder counts, and then the current one: a file in another folder
    above, such as a home folder or ``/tmp``, was not meant for the pipeline. ``pipeline_path`` may be a folder (a notebook's).

    Raises :class:`ConfigError`; an existing file is never ignored.
    """
    if explicit is not None:
        return load(explicit)
    path = Path(pipeline_path)
    beside = path if path.is_dir() else path.parent
    for folder in (beside, *_folders_beyond(beside)):
        if os.path.lexists(folder / FILE_NAME):
            config = load(folder / FILE_NAME)
            return config if folder is beside else replace(config, found_above=_found_above(config, beside))
        misnamed = folder / "spotwright.yml"
        if os.path.lexists(misnamed):
            raise ConfigError(
                f"{misnamed}: Spotwright does not read this name: rename it to {FILE_NAME}, or pass it with --config"
            )
    return built_in()


def from_mapping(data: Mapping[str, Any], name: str | Path = MAPPING_NAME) -> Config:
    """Read a mapping in the shape of ``spotwright.yaml``; ``version`` is optional.

    ``name`` is its name in messages; relative paths start at the name's folder, by default the current one. Raises
    :class:`ConfigError` as :func:`load` does, also for values that YAML does not have.
    """
    try:
        text = json.dumps({"version": VERSION, **data})
    except TypeError as error:
        raise ConfigError(f"{name}: {error}; expected texts, numbers, booleans, lists and mappings") from error
    return parse(text, name)


def load(path: str | Path) -> Config:
    """Read and check a configuration file. Raises :class:`ConfigError` with all its problems."""
    return parse(read_text(path, MAX_BYTES), str(path))


def files_named_in(path: Path) -> list[Path]:
    """The price sheets and traces that a configuration names, unread. Raises :class:`ConfigError`."""
    text = read_text(path, MAX_BYTES)
    problems = Problems(str(path))
    sheets = read_fields(read(text, problems), Location(problems), TOP)["prices"] or ()
    traces = [pool.simulate.trace for pool in parse(text, path, traces_exist=False).pools.values()]
    return [path.parent / name for name in (*sheets, *filter(None, traces))]


def built_in() -> Config:
    """Return the configuration without a file: the built-in pools and ``spot: prefer``, with a ``note`` for the user."""
    config = parse(_built_in_text(built_in_pools()), BUILT_IN_NAME)
    return replace(config, note=f"no {FILE_NAME}: using the built-in pools {_listed(config.pools)}, spot preferred")


def parse(
    text: str,
    name: str | Path = FILE_NAME,
    *,
    traces_exist: bool = True,
    quotes: Mapping[str, Quote] = MappingProxyType({}),
) -> Config:
    """Read and check the text of a configuration. ``name`` is its name in messages; paths of traces are relative to it.

    A run's stored text is read with ``traces_exist=False`` and the stored ``quotes`` (prices by pool), because the files may be
    gone; it may use earlier names of keys.

    Raises :class:`ConfigError`: a line for each problem, ``file:line: field: what was expected, what was found``, at most ten.
    """
    problems = Problems(str(name), stored=not traces_exist)
    root, location = read(text, problems), Location(problems)
    _refuse_newer(root, location)
    values = read_fields(root, location, TOP)
    path = BUILT_IN_NAME if str(name) == BUILT_IN_NAME else str(Path(name).absolute())
    target = read_fields(values["target"], location.key("target"), TARGET) if values["target"] else {}
    lint = read_fields(values["lint"], location.key("lint"), LINT) if values["lint"] else {}
    pools, note = _pools(values["pools"], location.key("pools"), Path(path).parent, traces_exist=traces_exist)
    pools = _priced(pools, values, quotes, location, Path(path).parent, sheets_exist=traces_exist)
    if path == BUILT_IN_NAME:  # stored by a run
        pools = {key: replace(pool, price_source=PriceSource.EXAMPLE) for key, pool in pools.items()}
    policies = read_policies(values["policy"], location.key("policy")) if values["policy"] else Policies()
    problems.raise_any()
    check_policies(policies, values["policy"], pools, location.key("policy"))
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
        lint_off=lint.get("off", {}),
        secrets=values["secrets"],
        config_maps=values["config_maps"],
    )


def _folders_beyond(folder: Path) -> list[Path]:
    """The folders above this one up to the root of its repository, nearest first; without a repository the current folder.

    ``.git`` is a file in worktrees and submodules. Source: "gitrepository-layout" in Git's documentation.
    """
    folders = [folder.absolute(), *folder.absolute().parents]
    root = next((number for number, each in enumerate(folders) if os.path.lexists(each / ".git")), None)
    if root is not None:
        return folders[1 : root + 1]
    here = Path.cwd()
    return [] if here == folders[0] else [here]


def _found_above(config: Config, folder: Path) -> str:
    return f"using {config.path}: no {FILE_NAME} in {folder.absolute()}"


def _refuse_newer(root: Table, location: Location) -> None:
    """Refuse a file of a newer format with only this problem: its other problems may be valid in that format."""
    entry = root.entries.get("version")
    if (
        entry is not None
        and isinstance(entry.node, Scalar)
        and entry.node.kind == "int"
        and int(entry.node.text) > VERSION
    ):
        text = (
            f"this file has version {entry.node.text}, and this Spotwright reads version {VERSION}: upgrade Spotwright"
        )
        raise location.problems.stop(entry.line, "version", text)


def _pools(
    node: Table | None, location: Location, folder: Path, *, traces_exist: bool
) -> tuple[Mapping[str, Pool], str]:
    """The file's pools, or the built-in pools with a note for the user."""
    if node is not None:
        return read_pools(node, location, folder, traces_exist=traces_exist), ""
    pools = built_in_pools()
    return pools, f"{location.problems.name} does not define pools: using the built-in ones, {_listed(pools)}"


def _priced(
    pools: Mapping[str, Pool],
    values: Mapping[str, Any],
    quotes: Mapping[str, Quote],
    location: Location,
    folder: Path,
    *,
    sheets_exist: bool,
) -> Mapping[str, Pool]:
    """The pools with prices from the stored ``quotes``, else from the file's price sheets."""
    pools = {
        name: replace(pool, price=quotes[name].price, quote=quotes[name]) if name in quotes else pool
        for name, pool in pools.items()
    }
    if not values["prices"] or not sheets_exist or not values["pools"]:
        return pools
    from spotwright.config.price_sheets import NoPrice, dated_sheets, quoted  # only files with sheets need it

    try:
        sheets = dated_sheets(folder / path for path in values["prices"])
    except ConfigError as error:
        location.key("prices").wrong(0, str(error))
        return pools
    priced = {}
    for name, pool in pools.items():
        priced[name] = pool
        if pool.price is None:
            try:
                priced[name] = quoted(pool, sheets, values["currency"])
            except NoPrice as error:
                location.key("pools").key(name).wrong(values["pools"].entries[name].line, str(error))
    return priced


def _listed(pools: Mapping[str, Pool]) -> str:
    return ", ".join(f"{pool.name} ({pool.capacity})" for pool in pools.values())


def _built_in_text(pools: Mapping[str, Pool]) -> str:
    """The built-in pools as a file for a run to store, so that a Spotwright with other built-in pools can resume it."""
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
    if pool.price is not None:
        yield f"    price: {float(pool.price):g}/h"
    yield f"    notice: {pool.notice:g}s"
    yield f"    simulate: {{boot: {pool.simulate.boot:g}s}}"


def _resource(name: str, amount: int) -> str:
    if name == "cpu":
        return f"cpu: {amount}m"
    return f"{name}: {format_bytes(amount) if name == 'memory' else amount}"


def require_pools(config: Config, texts: Iterable[str] = ()) -> None:
    """Raise :class:`ConfigError` if the configuration has only built-in pools, before work is placed for a cluster.

    The built-in pools represent nodes on one machine. They have the labels of every provider, so manifests placed on them would
    match no cluster's nodes.

    The message ends with lines for a ``spotwright.yaml``, for the provider that the manifests in ``texts`` indicate.
    """
    if config.note:
        problem = f"no {FILE_NAME}" if config.is_built_in else f"{config.path} does not define pools"
        raise ConfigError(f"{problem}: {own_pools(config, texts)}")


def own_pools(config: Config, texts: Iterable[str] = ()) -> str:
    """Advice on adding pools to a configuration that has only the built-in ones."""
    lines = _provider_of(texts).first_pools
    head = ["version: 1"] if config.is_built_in else []
    policy = ["policy: {default: {spot: prefer}}"] if config.is_built_in else []
    start = "\n".join([*head, "pools:", *lines, *policy])
    where = f"start {FILE_NAME} with" if config.is_built_in else "add for instance"
    return f"placing needs the node pools of your cluster (the built-in pools are for local runs); {where}\n\n{start}\n"


def _provider_of(texts: Iterable[str]) -> Provider:
    """The first provider that a text indicates; generic without one."""
    by_order = sorted(PROVIDERS.values(), key=lambda one: one.has_groups)  # Karpenter before its clouds
    for text in texts:
        for provider in by_order:
            if any(mark in text for mark in provider.marks):
                return provider
    return PROVIDERS[GENERIC]
