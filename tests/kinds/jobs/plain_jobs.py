"""Pod templates as hypothesis draws them, and what placement must keep of each."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from tests import plain_yaml

NAMES = st.sampled_from(["main", "train", "side-car"])


TOLERATIONS = st.lists(
    st.sampled_from(
        [
            {"key": "sku", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"},
            {"operator": "Exists"},
            {
                "key": "kubernetes.azure.com/scalesetpriority",
                "operator": "Equal",
                "value": "spot",
                "effect": "NoSchedule",
            },
        ]
    ),
    max_size=2,
    unique_by=str,
)


ENV = st.fixed_dictionaries({"name": st.sampled_from(["A", "SPOTWRIGHT_RUN"]), "value": st.text(max_size=4)})


PODS = st.fixed_dictionaries(
    {"containers": st.lists(st.fixed_dictionaries({"name": NAMES, "image": st.just("i")}, optional={
        "env": st.lists(ENV, max_size=2),
        "command": st.just(["sh", "-c", "# no comment: {{not}} a marker"]),
    }), min_size=1, max_size=2)},
    optional={
        "restartPolicy": st.sampled_from(["Never", "OnFailure"]),
        "tolerations": TOLERATIONS,
        "nodeSelector": st.just({}),
        "imagePullSecrets": st.just([{"name": "mine"}]),
        "terminationGracePeriodSeconds": st.integers(0, 90),
        "affinity": st.sampled_from([None, {}, {"nodeAffinity": {}}, {"podAntiAffinity": {}}]),
    },
)  # fmt: skip


class Plain(plain_yaml.Dumper):
    """Writes equal objects out: an edit inside an anchor that another place shares is refused, which is a fact of its own."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def kept(before: Any, after: Any) -> bool:
    """Whether everything of ``before`` is in ``after``, where it was; lists may have more items in front."""
    if isinstance(before, dict):
        return isinstance(after, dict) and all(
            key in after and kept(value, after[key]) for key, value in before.items()
        )
    if isinstance(before, list):
        tail = after[len(after) - len(before) :] if isinstance(after, list) else []
        return len(tail) == len(before) and all(kept(old, new) for old, new in zip(before, tail, strict=True))
    return before is None or bool(before == after)
