"""Every kind of wrong file has its message: line, field, expected value, found value."""

from __future__ import annotations

import pytest

from spotwright import config
from spotwright.errors import ConfigError

SPOT = "version: 1\npools:\n  a:\n    capacity: spot\n"  # the next line is the fifth, inside the pool
TWO = "version: 1\npools:\n  s: {capacity: spot}\n  d: {capacity: on-demand}\npolicy:\n"  # the next line is the sixth

YAML = {
    "an empty file": ("", "1: expected a configuration (version: 1, pools, policy), found an empty file"),
    "only a comment": ("# later\n", "1: expected a configuration (version: 1, pools, policy), found an empty file"),
    "a list": ("- version: 1\n", "1: expected a mapping with version, pools and policy, found a list"),
    "one word": ("version 1\n", "1: expected a mapping with version, pools and policy, found 'version 1'"),
    "two documents": ("version: 1\n---\nversion: 1\n", "2: expected one document, found a second one after '---'"),
    "a tab": (
        "version: 1\npools:\n\ta: {}\n",
        "3: not valid YAML: found character that cannot start any token; it is a tab: indent with spaces",
    ),
    "an open quote": (
        'version: 1\ncurrency: "USD\n',
        (
            "3: not valid YAML: found unexpected end of stream while scanning a quoted scalar, which began on line 2; "
            "a quote is not closed"
        ),
    ),
    "an open bracket": (
        "version: 1\npools: {a: {capacity: spot}\ncurrency: USD\n",
        (
            "3: not valid YAML: did not find expected ',' or '}' while parsing a flow mapping, which began on line 2; "
            "a bracket is not closed, or a comma is missing"
        ),
    ),
    "a key in a column of its own": (
        "version: 1\n currency: USD\n",
        (
            "2: not valid YAML: mapping values are not allowed in this context; "
            "a value that holds ': ' needs quotes, and keys of one level stand in one column"
        ),
    ),
    "a pattern without quotes": (
        "version: 1\npolicy:\n  tasks:\n    **/train: {spot: never}\n",
        "4: not valid YAML: did not find expected alphabetic or numeric character; a pattern that begins with * needs quotes",
    ),
    "an alias of nothing": (
        "version: 1\npolicy:\n  tasks:\n    *train : {spot: never}\n",
        "4: the alias *train names no anchor that ended before it; a text that begins with * needs quotes",
    ),
    "a list as key": ("version: 1\n? [a]\n: b\n", "2: expected a name as key, found a list"),
    "a value of a YAML type": (
        "version: 1\ncurrency: !!python/name:os.system USD\n",
        "2: currency: expected a value without a YAML tag, found tag:yaml.org,2002:python/name:os.system: remove it",
    ),
    "a control character": (
        "version: 1\ncurrency: \x07\n",
        "2: not valid YAML: control characters are not allowed (character 7)",
    ),
}

TOP = {
    "no version": ("currency: USD\n", "1: version: expected the number 1, found nothing: it is required"),
    "a version in quotes": ('version: "1"\n', "1: version: expected the number 1, found '1'"),
    "a newer version": (
        "version: 2\nclouds: {}\n",
        "1: version: this file has version 2, and this Spotwright reads version 1: upgrade Spotwright",
    ),
    "an unknown key": ("version: 1\npool: {}\n", "2: pool: unknown key, did you mean 'pools'?"),
    "a key like no other": (
        "version: 1\nzzz: {}\n",
        "2: zzz: unknown key, known here: config_maps, currency, lint, policy, pools, prices, secrets, target, version",
    ),
    "a key given twice": (
        "version: 1\ncurrency: USD\ncurrency: EUR\n",
        "3: currency: given twice, first on line 2: remove one",
    ),
    "a currency that is no code": (
        "version: 1\ncurrency: dollars\n",
        "2: currency: expected a currency code such as USD, found 'dollars'",
    ),
    "a target that is not known": (
        "version: 1\ntarget: {autoscaler: fast}\n",
        "2: target.autoscaler: expected cluster-autoscaler or karpenter, found 'fast'",
    ),
    "a target's version": (
        "version: 1\ntarget: {kubernetes: new}\n",
        "2: target.kubernetes: expected a version such as 1.33, found 'new'",
    ),
    "a Trainer that is too old": (
        "version: 1\ntarget: {trainer: '2.1'}\n",
        "2: target.trainer: expected a version such as 2.3 (2.2 is the oldest), found '2.1'",
    ),
    "a package that nobody can bring": (
        "version: 1\ntarget: {package: latest}\n",
        "2: target.package: expected embedded, configmap, image, a version (0.1.0), a URL or a path in the image, found 'latest'",
    ),
    "no pool at all": ("version: 1\npools: {}\n", "2: pools: expected at least one pool, found none"),
    "pools that are a list": (
        "version: 1\npools: [a]\n",
        "2: pools: expected a mapping of pools by name, found a list",
    ),
    "pools left empty": ("version: 1\npools:\n", "2: pools: expected a mapping of pools by name, found nothing"),
}

POOLS = {
    "a pool's name": (
        "version: 1\npools:\n  GPU_spot: {capacity: spot}\n",
        "3: pools.GPU_spot: expected a name of at most 63 lower-case letters, digits and -, as Kubernetes asks for",
    ),
    "a pool that is a word": (
        "version: 1\npools:\n  a: spot\n",
        "3: pools.a: expected a mapping such as {capacity: spot}, found 'spot'",
    ),
    "no capacity": (
        "version: 1\npools:\n  a: {price: 1/h}\n",
        "3: pools.a.capacity: expected spot or on-demand, found nothing: it is required",
    ),
    "a capacity of another name": (
        "version: 1\npools:\n  a: {capacity: preemptible}\n",
        "3: pools.a.capacity: expected spot or on-demand, found 'preemptible'",
    ),
    "a pool given twice": (
        "version: 1\npools:\n  a: {capacity: spot}\n  a: {capacity: spot}\n",
        "4: pools.a: given twice, first on line 3: remove one",
    ),
    "a misspelt key": (SPOT + "    max-nodes: 3\n", "5: pools.a.max-nodes: unknown key, did you mean 'max_nodes'?"),
    "a provider": (
        SPOT + "    provider: azure\n",
        "5: pools.a.provider: expected aks, gke, eks, oke, karpenter or generic, found 'azure'",
    ),
    "memory without a unit": (
        SPOT + "    node: {memory: 16}\n",
        "5: pools.a.node.memory: expected an amount with its unit such as 112Gi, found 16",
    ),
    "a resource of another name": (
        SPOT + "    node: {gpu: 1}\n",
        "5: pools.a.node.gpu: unknown resource, expected cpu, memory, ephemeral-storage or a device such as nvidia.com/gpu",
    ),
    "half a device": (
        SPOT + "    node: {nvidia.com/gpu: 0.5}\n",
        "5: pools.a.node.nvidia.com/gpu: expected a whole number such as 1, found 0.5",
    ),
    "cpu that is no amount": (
        SPOT + "    node: {cpu: six}\n",
        "5: pools.a.node.cpu: expected cores such as 6 or 500m, found 'six'",
    ),
    "more nodes at least than at most": (
        SPOT + "    min_nodes: 5\n    max_nodes: 4\n",
        "5: pools.a.min_nodes: expected at most max_nodes (4), found 5",
    ),
    "half a node": (
        SPOT + "    max_nodes: 1.5\n",
        "5: pools.a.max_nodes: expected a whole number, 0 or more, found 1.5",
    ),
    "a label that YAML takes for a truth": (
        SPOT + "    labels: {gpu: true}\n",
        '5: pools.a.labels.gpu: expected text, found true: labels are text, write "true" in quotes',
    ),
    "a label that YAML takes for a number": (
        SPOT + "    labels: {generation: 3}\n",
        '5: pools.a.labels.generation: expected text, found 3: labels are text, write "3" in quotes',
    ),
    "a label's key": (
        SPOT + "    labels: {a b: c}\n",
        "5: pools.a.labels.'a b': expected a label key: letters, digits, - _ . and an optional prefix such as example.com/",
    ),
    "a label's value": (
        SPOT + "    labels: {a: b c}\n",
        (
            "5: pools.a.labels.a: expected a label value of at most 63 letters, digits, - _ . "
            "that begins and ends with a letter or digit, found 'b c'"
        ),
    ),
    "a taint without effect": (
        SPOT + "    taints: [sku=gpu]\n",
        "5: pools.a.taints[0]: expected text such as \"sku=gpu:NoSchedule\" (or PreferNoSchedule, NoExecute), found 'sku=gpu'",
    ),
    "a taint as Kubernetes writes it": (
        SPOT + "    taints:\n    - {key: sku, effect: NoSchedule}\n",
        '6: pools.a.taints[0]: expected text such as "sku=gpu:NoSchedule" (or PreferNoSchedule, NoExecute), found a mapping',
    ),
    "a taint given twice": (
        SPOT + '    taints: ["a=b:NoSchedule", "a:NoSchedule"]\n',
        "5: pools.a.taints[1]: a:NoSchedule is given twice, and a node has one such taint: remove one",
    ),
    "one zone": (SPOT + '    zones: "1"\n', "5: pools.a.zones: expected a list of zones such as [\"1\"], found '1'"),
    "a zone given twice": (SPOT + "    zones: [b, b]\n", "5: pools.a.zones[1]: 'b' is given twice: remove one"),
    "a price a minute": (
        SPOT + "    price: 0.02/m\n",
        "5: pools.a.price: expected an amount per hour such as 0.97/h, found '0.02/m'",
    ),
    "a duration of another unit": (
        SPOT + "    notice: 30 seconds\n",
        "5: pools.a.notice: expected a duration such as 30s, found '30 seconds'",
    ),
    "no lifetime": (
        SPOT + "    max_lifetime: 0s\n",
        "5: pools.a.max_lifetime: expected a duration such as 24h, more than 0, found '0s'",
    ),
    "a highest price for on-demand": (
        "version: 1\npools:\n  a: {capacity: on-demand, max_price: 1/h}\n",
        "3: pools.a.max_price: only spot pools have a maximum price: remove it",
    ),
}

SIMULATE = {
    "on-demand nodes that are taken": (
        "version: 1\npools:\n  a: {capacity: on-demand, simulate: {interrupt_every: 20s}}\n",
        "3: pools.a.simulate.interrupt_every: on-demand nodes are not reclaimed: remove it, or set capacity: spot",
    ),
    "on-demand nodes with a trace": (
        "version: 1\npools:\n  a: {capacity: on-demand, simulate: {trace: t.json}}\n",
        "3: pools.a.simulate.trace: on-demand nodes are not reclaimed: remove it, or set capacity: spot",
    ),
    "taken every no time": (
        SPOT + "    simulate: {interrupt_every: 0}\n",
        "5: pools.a.simulate.interrupt_every: expected a duration such as 20s, more than 0, found 0",
    ),
    "a mean and a trace": (
        SPOT + "    simulate:\n      trace: t.json\n      interrupt_every: 20s\n",
        "7: pools.a.simulate: expected interrupt_every or trace, found both: remove one",
    ),
    "a start without a trace": (
        SPOT + "    simulate: {start: 6h}\n",
        "5: pools.a.simulate.start: has an effect only with trace: add that, or remove this",
    ),
    "the earlier name of a pool's age": (
        SPOT + "    lifetime: 24h\n",
        "5: pools.a.lifetime: was renamed to max_lifetime",
    ),
    "the earlier name of a mean": (
        SPOT + "    simulate: {taken_every: 1h}\n",
        "5: pools.a.simulate.taken_every: was renamed to interrupt_every",
    ),
    "the earlier name of a duration": (
        SPOT + "policy: {default: {work: 1h}}\n",
        "5: policy.default.work: was renamed to expected_duration",
    ),
    "the earlier name of a wait": (
        SPOT + "policy: {default: {errors: {ceiling: 5m}}}\n",
        "5: policy.default.errors.ceiling: was renamed to max_backoff",
    ),
    "work without a mean": (
        SPOT + "    simulate: {expected_duration: 1h}\n",
        "5: pools.a.simulate.expected_duration: has an effect only with interrupt_every: add that, or remove this",
    ),
    "another way to drain": (
        SPOT + "    simulate: {drain: now}\n",
        "5: pools.a.simulate.drain: expected at-notice or before-end, found 'now'",
    ),
}

POLICIES = {
    "a policy beside default and tasks": (
        TWO + "  spot: prefer\n",
        "6: policy.spot: unknown key, known here: default, tasks",
    ),
    "spot that is a truth": (
        TWO + "  default: {spot: no}\n",
        "6: policy.default.spot: expected require, prefer or never, found no",
    ),
    "a field of another name": (
        TWO + "  default: {pending_time: 1m}\n",
        "6: policy.default.pending_time: unknown key, did you mean 'pending_timeout'?",
    ),
    "a field of another group": (
        TWO + "  default:\n    errors: {max: 3}\n",
        "7: policy.default.errors.max: unknown key, known here: backoff, factor, max_backoff, retries",
    ),
    "a group that is a number": (
        TWO + "  default: {interruptions: 3}\n",
        "6: policy.default.interruptions: expected a mapping with max, backoff, factor, max_backoff, found 3",
    ),
    "a budget below nothing": (
        TWO + "  default: {errors: {retries: -1}}\n",
        "6: policy.default.errors.retries: expected a whole number, 0 or more, found -1",
    ),
    "a ladder that is a word": (
        TWO + "  default: {ladder: s}\n",
        "6: policy.default.ladder: expected a list of pool names, found 's'",
    ),
    "a rung given twice": (
        TWO + "  default: {ladder: [s, s]}\n",
        "6: policy.default.ladder[1]: 's' is given twice: remove one",
    ),
    "a rung that is a mapping": (
        TWO + "  default: {ladder: [{s: 1}]}\n",
        "6: policy.default.ladder[0]: expected a name (in quotes where it looks like a number), found a mapping",
    ),
    "a rung that is no pool": (
        TWO + "  default: {ladder: [s, gpu]}\n",
        "6: policy.default.ladder[1]: 'gpu' is not a pool, known here: d, s",
    ),
    "a deadline without a zone": (
        TWO + "  default: {deadline: 2026-11-21T08:00:00}\n",
        (
            "6: policy.default.deadline: expected a duration from the run's start (8h), or a time with its zone "
            "(2026-11-21T08:00:00+01:00); add 'best-effort' if it may be missed, found '2026-11-21T08:00:00'"
        ),
    ),
    "a pattern with an empty name": (
        TWO + '  tasks: {"a//b": {spot: never}}\n',
        "6: policy.tasks.a//b: expected names between single slashes, such as 'loop/train'",
    ),
    "a pattern without a policy": (
        TWO + "  tasks: {train: never}\n",
        "6: policy.tasks.train: expected a mapping of policy fields such as {spot: never}, found 'never'",
    ),
    "a pattern given twice": (
        TWO + "  tasks:\n    train: {timeout: 1h}\n    train: {timeout: 2h}\n",
        "8: policy.tasks.train: given twice, first on line 7: remove one",
    ),
    "a fallback that is never reached": (
        TWO + "  default: {fall_back_after: 5, interruptions: {max: 3}}\n",
        (
            "6: policy.default: fall_back_after is 5 (spotwright.yaml:6) but interruptions.max is 3 (spotwright.yaml:6): "
            "on-demand would never be reached; lower the first"
        ),
    ),
    "a fallback that only the pattern makes unreachable": (
        TWO + "  default: {fall_back_after: 5}\n  tasks:\n    train: {interruptions: {max: 3}}\n",
        (
            "8: policy.tasks.train: fall_back_after is 5 (spotwright.yaml:6) but interruptions.max is 3 (spotwright.yaml:8): "
            "on-demand would never be reached; lower the first"
        ),
    ),
    "never spot on a ladder of spot": (
        TWO + "  default: {ladder: [s]}\n  tasks:\n    deploy: {spot: never}\n",
        (
            "8: policy.tasks.deploy: spot: never (spotwright.yaml:8) needs an on-demand pool, "
            "and the ladder (spotwright.yaml:6) has none: add one"
        ),
    ),
    "spot required where none is": (
        "version: 1\npools:\n  d: {capacity: on-demand}\npolicy:\n  default: {spot: require}\n",
        "5: policy.default: spot: require (spotwright.yaml:5) needs a spot pool, and none is configured: add one",
    ),
}

CASES = {**YAML, **TOP, **POOLS, **SIMULATE, **POLICIES}


def errors_of(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        config.parse(text)
    return str(caught.value)


@pytest.mark.parametrize("name", CASES)
def test_a_wrong_file_is_refused_with_its_line_and_field(name: str) -> None:
    text, message = CASES[name]
    assert errors_of(text).splitlines()[0] == f"spotwright.yaml:{message}"


@pytest.mark.parametrize("name", [*POOLS, *SIMULATE, *POLICIES])
def test_one_mistake_is_one_message(name: str) -> None:
    assert len(errors_of(CASES[name][0]).splitlines()) == 1


def test_all_mistakes_are_shown_in_the_order_of_the_file() -> None:
    text = "version: 1\nx: 1\npools:\n  a: {capacity: spot, notice: x}\npolicy:\n  default: {spot: x}\ncurrency: x\n"
    assert [int(line.split(":")[1]) for line in errors_of(text).splitlines()] == [2, 4, 6, 7]


def test_more_than_ten_mistakes_are_counted() -> None:
    text = "version: 1\n" + "".join(f"zzz{number}: 1\n" for number in range(13))
    assert errors_of(text).splitlines()[10:] == ["... and 3 more"]


def test_a_newer_file_gets_one_problem_only() -> None:
    assert len(errors_of("version: 7\nnew: 1\npools: []\n").splitlines()) == 1


def test_a_problem_of_the_default_is_not_repeated_for_every_pattern() -> None:
    text = (
        TWO
        + "  default: {fall_back_after: 5, interruptions: {max: 3}}\n  tasks: {a: {timeout: 1h}, b: {timeout: 2h}}\n"
    )
    assert len(errors_of(text).splitlines()) == 1


def test_a_message_is_one_line_whatever_the_key_holds() -> None:
    assert errors_of('version: 1\n"a\\nb": 1\n') == (
        "spotwright.yaml:2: 'a\\nb': unknown key, "
        "known here: config_maps, currency, lint, policy, pools, prices, secrets, target, version"
    )


def test_a_long_value_is_shortened_in_its_message() -> None:
    assert max(len(line) for line in errors_of(f"version: 1\ncurrency: {'x' * 5000}\n").splitlines()) < 200


def test_the_message_names_the_file_as_it_was_given() -> None:
    with pytest.raises(ConfigError, match=r"^team/spotwright\.yaml:1: "):
        config.parse("version: x", "team/spotwright.yaml")
