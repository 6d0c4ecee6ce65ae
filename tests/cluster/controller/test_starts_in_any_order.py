"""A controller that starts before the controllers of other kinds, or beside other releases of them, places pods all the while."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.cluster.admission_objects import a_job
from tests.cluster.controller.processes import a_cluster, review, running
from tests.cluster.watching.small_api_server import SmallApiServer, serving

from spotwright.cluster import autoscaler_reader
from spotwright.placing.context import POLICY_ANNOTATION

TRAINER, ARGO, KARPENTER = "/apis/trainer.kubeflow.org/v1alpha1", "/apis/argoproj.io/v1alpha1", "/apis/karpenter.sh/v1"


def unavailable() -> Any:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.json_response({"kind": "Status"}, status=503, headers={"Retry-After": "100"})

    return answer


def silent() -> Any:
    async def answer(_request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(100)
        return web.json_response({})

    return answer


def nothing_is_installed(_server: SmallApiServer) -> None:
    """No CRD at all."""


def all_are_of_other_releases(server: SmallApiServer) -> None:
    """Each group has its kinds in another version."""
    server.served |= {
        "/apis/trainer.kubeflow.org/v9": ["trainjobs"],
        "/apis/argoproj.io/v9": ["workflows"],
        "/apis/karpenter.sh/v9": ["nodeclaims", "nodepools"],
    }


def all_answer_503(server: SmallApiServer) -> None:
    """The API servers behind the groups are down."""
    server.pages |= dict.fromkeys((TRAINER, ARGO, KARPENTER, f"{KARPENTER}/nodepools"), unavailable())


def none_answers(server: SmallApiServer) -> None:
    """They hang, or the webhook that converts their objects does."""
    server.pages |= dict.fromkeys((TRAINER, ARGO, KARPENTER, f"{KARPENTER}/nodepools"), silent())


@pytest.mark.parametrize("others", [nothing_is_installed, all_are_of_other_releases, all_answer_503, none_answers])
def test_pods_are_placed_whatever_is_installed_beside_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, others: Any
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(autoscaler_reader, "_ANSWERS", 0.5)

    async def scenario() -> dict[str, Any]:
        async with serving() as server:
            a_cluster(server)
            others(server)
            async with running(server, tmp_path):
                placed: dict[str, Any] = await review(caplog, server, a_job())
                return placed

    placed = asyncio.run(scenario())
    assert POLICY_ANNOTATION in str(placed) or "affinity" in str(placed)
