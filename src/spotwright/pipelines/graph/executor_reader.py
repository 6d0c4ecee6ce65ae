"""Read executors of a compiled pipeline: Python components of any 2.x SDK, containers, PVC steps and importers.

The SDK compiles a Python component to a container whose command first installs packages with pip (where there are any), then
writes the module's source to a file and starts the SDK's executor with it. The text changed between versions (one pip line or
two, options, ``kfp.components.executor_main`` before ``kfp.dsl.executor_main``), the shape did not: the script that starts the
executor stands before the source, and the function's name after ``--function_to_execute``. Sources: the
functions ``_get_command_and_args_for_lightweight_component`` and ``_get_packages_to_install_command`` of
``component_factory.py``, SDK 2.0 to 2.17.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from spotwright.graph import Container
from spotwright.model.quantities import parse_quantity
from spotwright.pipelines.graph.embedded_archives import escaping_member
from spotwright.pipelines.graph.kfp_executors import Importer, PvcStep, PythonComponent
from spotwright.pipelines.ir.dag_walk import PVC_IMAGES
from spotwright.pipelines.values.artifact_paths import RELATIVE, is_relative
from spotwright.pipelines.values.parameter_values import whole_numbers

__all__ = ["Unsupported", "read_executor", "read_importer"]

_STARTS_EXECUTOR = re.compile(r"-m\s+(kfp(?:\.\w+)*)\.executor_main\b")
_PIP_INSTALL = re.compile(r"-m\s+pip\s+install\s+")
_KFP_ITSELF = re.compile(r"kfp([=<>!~@\[ ]|$)")
_VALUE_OPTIONS = {"--index-url": "urls", "-i": "urls", "--extra-index-url": "urls", "--trusted-host": "hosts"}
_INSTALLED_WITH_KFP = ("typing-extensions",)
_KINDS = "expected a container or an importer"


class Unsupported(Exception):
    """The executor is of a kind that cannot run here; the text names the kind and the fix."""


def read_executor(
    executor: Mapping[str, Any], kubernetes: Mapping[str, Any] | None = None
) -> PythonComponent | Container | PvcStep:
    """Read one entry of ``deploymentSpec.executors`` that is no importer; all but Python components and PVC steps are containers.

    ``kubernetes`` are its settings in the platform document. Raises :class:`Unsupported` for other kinds of executors.
    """
    container = executor.get("container")
    if container is None:
        raise Unsupported(f"an executor of the kind {', '.join(sorted(executor)) or 'nothing'}; {_KINDS}")
    command = tuple(str(part) for part in container.get("command") or ())
    args = tuple(str(part) for part in container.get("args") or ())
    image = str(container.get("image") or "")
    start = next((index for index, part in enumerate(command) if _STARTS_EXECUTOR.search(part)), None)
    if image in PVC_IMAGES:
        return PvcStep(creates=PVC_IMAGES[image])
    if start is None:
        return _read_container(command, args, image, container.get("env") or (), kubernetes or {})
    module = _STARTS_EXECUTOR.search(command[start])
    if module and module.group(1).startswith("kfp.v2"):
        raise Unsupported("a Python component compiled by kfp 1; compile the pipeline again with kfp 2")
    return _read_python_component(command, args, start, image, container.get("env") or ())


def read_importer(importer: Mapping[str, Any], definition: Mapping[str, Any]) -> Importer:
    """Read an importer and its component.

    Raises :class:`Unsupported` for one without an artifact or address, or with a relative path.
    """
    outputs = list(((definition.get("outputDefinitions") or {}).get("artifacts") or {}).items())
    if len(outputs) != 1:
        raise Unsupported("an importer without an artifact")
    address = importer.get("artifactUri") or {}
    parameter = address.get("runtimeParameter")
    uri = f"{{{{$.inputs.parameters['{parameter}']}}}}" if parameter else str(address.get("constant") or "")
    if not uri:
        raise Unsupported("an importer without an address: its artifactUri has neither constant nor runtimeParameter")
    if not parameter and "{{$" not in uri and is_relative(uri):
        raise Unsupported(f"an importer whose address, {uri}, {RELATIVE}")
    name, output = outputs[0]
    schema = importer.get("typeSchema") or output.get("artifactType") or {}
    return Importer(
        output=name,
        uri=uri,
        schema=str(schema.get("schemaTitle") or "system.Artifact"),
        version=str(schema.get("schemaVersion") or "0.0.1"),
        metadata=whole_numbers(importer.get("metadata") or {}),
    )


def _read_container(
    command: Sequence[str], args: Sequence[str], image: str, env: Any, kubernetes: Mapping[str, Any]
) -> Container:
    if not image:
        raise Unsupported("a container component without an image")
    security, shared = kubernetes.get("securityContext") or {}, kubernetes.get("enabledSharedMemory")
    try:
        user, group = (None if security.get(key) is None else int(security[key]) for key in ("runAsUser", "runAsGroup"))
        memory = None if shared is None else int(parse_quantity(str(shared.get("size") or 0)))
    except (ValueError, TypeError, AttributeError) as error:
        raise Unsupported(
            f"a container whose securityContext or enabledSharedMemory cannot be read: {error}"
        ) from error
    return Container(
        image,
        tuple(command),
        tuple(args),
        _environment(env),
        pull=str(kubernetes.get("imagePullPolicy") or ""),
        user=user,
        group=group,
        non_root=bool(security.get("runAsNonRoot")),
        shared_memory=memory,
    )


def _environment(env: Any) -> dict[str, str]:
    return {str(entry["name"]): str(entry.get("value", "")) for entry in env}


def _read_python_component(
    command: Sequence[str], args: Sequence[str], start: int, image: str, env: Any
) -> PythonComponent:
    function = _option(args, "--function_to_execute")
    if start + 1 >= len(command) or not function:
        raise Unsupported("a Python component whose source or function is missing from its command")
    module = command[start + 1]
    if re.search(r"^from kfp\.v2", module, re.MULTILINE):
        raise Unsupported("a Python component compiled by kfp 1; compile the pipeline again with kfp 2")
    _check_archive(module)
    if not re.search(rf"\b{re.escape(function)}\b", module):
        raise Unsupported(f"a Python component whose source does not define its function {function!r}")
    packages, kfp, urls, hosts = _read_installs(" ".join(command[:start]))
    return PythonComponent(
        module=module,
        function=function,
        packages=packages,
        index_urls=urls,
        trusted_hosts=hosts,
        env=_environment(env),
        image=image,
        kfp=kfp,
        command=tuple(command),
    )


def _check_archive(module: str) -> None:
    try:
        member = escaping_member(module)
    except ValueError as error:
        raise Unsupported(str(error)) from error
    if member is not None:
        raise Unsupported(
            f"the archive of its files has the member {member!r}, which would leave the folder of the archive"
        )


def _option(args: Sequence[str], name: str) -> str:
    for index, arg in enumerate(args):
        if arg == name and index + 1 < len(args):
            return args[index + 1]
        if arg.startswith(f"{name}="):
            return arg.partition("=")[2]
    return ""


@lru_cache(maxsize=256)
def _read_installs(script: str) -> tuple[tuple[str, ...], str, tuple[str, ...], tuple[str, ...]]:
    """The packages, the SDK's own requirement, the index addresses and trusted hosts of every pip line of the script."""
    packages: list[str] = []
    urls: dict[str, None] = {}
    hosts: dict[str, None] = {}
    kfp = ""
    for match in _PIP_INSTALL.finditer(script):
        words = iter(_words(script[match.end() :].partition("\n")[0]))
        requirements: list[str] = []
        for word in words:
            if word in _VALUE_OPTIONS:
                (urls if _VALUE_OPTIONS[word] == "urls" else hosts)[next(words, "")] = None
            elif not word.startswith("-"):
                requirements.append(word)
        sdk = next((word for word in requirements if _KFP_ITSELF.match(word)), "")
        kfp = kfp or sdk
        packages += [
            word for word in requirements if word != sdk and not (sdk and word.startswith(_INSTALLED_WITH_KFP))
        ]
    return tuple(packages), kfp, tuple(urls), tuple(hosts)


def _words(line: str) -> list[str]:
    """The arguments of one pip command of a shell line. The SDK writes each requirement as a Python ``repr``."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="&|;")
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    for word in lexer:
        if set(word) <= set("&|;"):
            break
        words.append(word)
    return words
