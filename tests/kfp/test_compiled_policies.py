"""Policies in a pipeline that the real SDK compiled."""

from __future__ import annotations

import json

from spotwright.kfp.compiled import Compiled


def test_the_real_compiler_keeps_policy_label_annotation_and_default(training: Compiled) -> None:
    (label,) = training.platform["spotwright"]["deploymentSpec"]["executors"]
    text = training.platform["spotwright"]["deploymentSpec"]["executors"][label]["policy"]
    pod = training.platform["kubernetes"]["deploymentSpec"]["executors"][label]["podMetadata"]
    assert json.loads(text) == {"spot": "prefer", "interruptions": {"max": 5}}
    assert pod == {"labels": {"spotwright.dev/spot": "prefer"}, "annotations": {"spotwright.dev/policy": text}}
    assert json.loads(training.platform["spotwright"]["config"]["policy"]) == {
        "spot": "prefer",
        "interruptions": {"max": 3},
    }
