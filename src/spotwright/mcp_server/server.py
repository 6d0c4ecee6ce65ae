"""The server: the official SDK's, on standard input and output, with the tools of :mod:`spotwright.mcp_server.tools`."""

from __future__ import annotations

import logging
from typing import Any

import anyio
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    ToolAnnotations,
)
from mcp.types import Tool as ListedTool

from spotwright.errors import InputError, SpotwrightError
from spotwright.mcp_server.project import Project
from spotwright.mcp_server.tools import DATA, TOOLS, Tool, answer_text
from spotwright.version import __version__
from spotwright.visible_text import visible

__all__ = ["serve"]

_LOG = logging.getLogger(__name__)
_AT_ONCE = 2  # commands: a client may ask for many
_LONGEST_SENTENCE = 1_000  # characters
_INSTRUCTIONS = (
    "Spotwright runs Kubeflow work on spot capacity. Use these tools to find why attempts ended, what runs cost, and what "
    f"is unsafe on spot. {DATA}"
)


def serve(project: Project) -> None:
    """Serve until the client closes the input."""
    anyio.run(_serve, project)


async def _serve(project: Project) -> None:
    tools = {tool.name: tool for tool in TOOLS}
    places = anyio.Semaphore(_AT_ONCE)

    async def list_tools(_context: Any, _params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[_listed(tool) for tool in TOOLS if project.writes or not tool.writes])

    async def call_tool(_context: Any, params: CallToolRequestParams) -> CallToolResult:
        try:
            tool = _allowed(tools.get(params.name), params.name, project)
            arguments = _checked(tool, params.arguments or {})
            async with places:
                return _result(answer_text(await tool.answer(project, arguments)))
        except SpotwrightError as error:
            return _result(_sentence(str(error)), is_error=True)
        except Exception as error:  # noqa: BLE001 - one call that fails must not end the server
            _LOG.exception("the tool %s failed", params.name)
            return _result(_sentence(f"{params.name} failed: {type(error).__name__}; its log has more"), is_error=True)

    server = Server(
        "spotwright",
        version=__version__,
        instructions=_INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


def _listed(tool: Tool) -> ListedTool:
    hints = ToolAnnotations(read_only_hint=not tool.writes, destructive_hint=tool.writes, open_world_hint=False)
    return ListedTool(name=tool.name, description=tool.does, input_schema=tool.schema(), annotations=hints)


def _allowed(tool: Tool | None, name: str, project: Project) -> Tool:
    if tool is None:
        raise InputError(f"there is no tool {name!r}: there are {', '.join(each.name for each in TOOLS)}")
    if tool.writes and not project.writes:
        raise InputError(f"{tool.name} writes, and this server only reads: start spotwright mcp --write")
    return tool


def _checked(tool: Tool, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments. Raises :class:`InputError` with the first thing that is wrong with them."""
    error = best_match(Draft202012Validator(tool.schema()).iter_errors(arguments))
    if error is not None:
        raise InputError(f"{tool.name}{error.json_path.removeprefix('$')}: {error.message}")
    return arguments


def _sentence(text: str) -> str:
    return visible(" ".join(text.split()))[:_LONGEST_SENTENCE]


def _result(text: str, *, is_error: bool = False) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=is_error)
