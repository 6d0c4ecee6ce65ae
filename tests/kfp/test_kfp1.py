"""Pipelines written for kfp 1."""

from __future__ import annotations

from spotwright.kfp.kfp1 import advise, find_kfp1

STAGES = """\
import kfp.dsl as dsl
import kfp.gcp as gcp
from kfp.v2 import compiler
from kfp.components import func_to_container_op
from kubernetes.client.models import V1Toleration

train.set_gpu_limit(4).apply(gcp.use_preemptible_nodepool()).set_retry(5)
task.add_toleration(V1Toleration(key="a"))
task.add_affinity(aff)
table.apply(len)
op = dsl.ContainerOp(name="x")
"""


def test_every_line_of_kfp_1_is_found_with_its_replacement() -> None:
    found = {(finding.line, finding.name) for finding in find_kfp1(STAGES)}
    assert found >= {
        (2, "kfp.gcp"),
        (3, "kfp.v2"),
        (4, "func_to_container_op"),
        (7, "use_preemptible_nodepool"),
        (8, "add_toleration"),
        (9, "add_affinity"),
        (11, "ContainerOp"),
    }


def test_the_most_telling_name_of_a_line_is_chosen() -> None:
    finding = advise(STAGES, 7, "'PipelineTask' object has no attribute 'apply'")
    assert finding is not None
    assert (finding.name, "spot.prefer(task)" in finding.replacement) == ("use_preemptible_nodepool", True)


def test_an_error_on_another_line_is_explained_by_the_name_in_its_text() -> None:
    finding = advise(STAGES, 99, "No module named 'kfp.gcp'")
    assert finding is not None
    assert finding.line == 2


def test_an_error_unrelated_to_kfp_1_gets_no_advice() -> None:
    assert advise(STAGES, 1, "division by zero") is None
    assert find_kfp1("def broken(:") == []
    assert find_kfp1("from kfp import dsl\nx = frame.groupby('a')") == []
