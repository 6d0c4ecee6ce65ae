"""Anchors, aliases, merge keys and tags: an edit stays shared where all need it, and is written out where only one does."""

from __future__ import annotations

import pytest
from tests.placing.placed import FILE, PREFER, a_config, place, refusal
from tests.placing.written_out import assert_placed_as_written_out, values

from spotwright.manifests.files import place_text, unplace_text
from spotwright.placing.documents import ManifestError


def job(spec: str, metadata: str = "{name: a}", template: str = "") -> str:
    return (
        f"apiVersion: batch/v1\nkind: Job\nmetadata: {metadata}\nspec:\n  template:\n{template}    spec:\n"
        f"      restartPolicy: Never\n{spec}"
    )


def training(template: str, worker: str) -> str:
    return f"""\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {{name: ddp}}
spec:
  pytorchReplicaSpecs:
    Master:
      template:{template}
    Worker:
      replicas: 3
      template:{worker}
"""


CONTAINERS = "      containers:\n      - {name: m, image: a}\n"


@pytest.mark.parametrize(
    "spec",
    [
        f"      tolerations: &t\n      - {{key: a, operator: Exists}}\n{CONTAINERS}",
        f"      tolerations: !!seq &t\n      # - first\n      - {{key: a, operator: Exists}}\n{CONTAINERS}",
        f"      tolerations: &t # of all\n        - {{key: a, operator: Exists}}\n{CONTAINERS}",
        f"      tolerations: &t []\n{CONTAINERS}",
        f"      tolerations: &t [{{key: a, operator: Exists}}]\n{CONTAINERS}",
        f"      nodeSelector: &none\n{CONTAINERS}",
        "      containers: &c\n      - &m\n        name: m\n        image: a\n        env: &e\n        - {name: A, value: b}\n",
        "      containers: !list\n      - !container\n        name: m\n        image: !image a\n        env: !!seq []\n",
        "      containers: &c [&m {name: m, image: &i a, env: &e [], resources: &a {}}]\n",
    ],
    ids=["block", "tag", "remark", "empty", "flow", "null", "nested", "own tags", "flow nested"],
)
def test_an_anchor_or_a_tag_that_nothing_shares_stays(spec: str) -> None:
    placed = assert_placed_as_written_out(job(spec))
    for word in spec.split():
        if word[0] in "&!" and len(word) > 1:
            assert word.strip("{}[],") in placed


def test_a_shared_template_stays_where_the_master_has_it_and_is_written_out_for_the_workers() -> None:
    text = training(
        " &pod\n        spec:\n          containers:\n          - name: pytorch\n            image: ddp:1\n"
        "            command: [torchrun, 'train.py']\n            resources: &r {limits: {nvidia.com/gpu: 1}}\n",
        " *pod  # the same\n",
    )
    placed = assert_placed_as_written_out(text)
    assert "      template: &pod\n" in placed
    assert "      template: # the same\n        spec:\n          containers:\n          - name: pytorch\n" in placed
    assert placed.count("command: [torchrun, 'train.py']") == 2
    assert "resources: *r" in placed


def test_what_both_roles_need_stays_shared() -> None:
    text = """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: t}
spec:
  tfReplicaSpecs:
    Worker:
      template:
        spec:
          tolerations: &t [{key: a, operator: Exists}]
          containers: [{name: tensorflow, image: a, resources: &r {}}]
    Evaluator:
      template:
        spec:
          tolerations: *t
          containers: [{name: tensorflow, image: a, resources: *r}]
"""
    placed = assert_placed_as_written_out(text)
    assert "tolerations: *t\n" in placed
    assert "resources: *r" in placed


def test_an_alias_in_a_part_that_is_not_placed_keeps_its_value() -> None:
    text = job(f"      tolerations: &t [{{key: a, operator: Exists}}]\n{CONTAINERS}") + "x-copy: *t\n"
    placed = assert_placed_as_written_out(text)
    assert "x-copy: [{key: a, operator: Exists}]\n" in placed


@pytest.mark.parametrize(
    ("metadata", "template"),
    [
        ("\n  name: a\n  annotations: &x {team: t}", "\n      annotations: *x"),
        ("\n  name: a\n  annotations: &x\n    team: t", "\n      annotations:\n        <<: *x  # all\n        more: m"),
        ("{name: a, annotations: &x {team: t}}", "\n      annotations: {<<: *x, more: m}"),
        ("{name: a, labels: &x {app: t}, annotations: {<<: *x}}", "\n      labels: {<<: *x, tier: b}"),
        ("{name: &x a}", " {labels: {app: *x}}"),
        ("{name: a, labels: &x , annotations: *x}", " {labels: *x}"),
        ("{name: a, labels: &x {<<: {a: b}, c: d}}", " {labels: {<<: [*x, {e: f}], g: h, <<: *x}}"),
        ("&x\n  name: a\n  labels: {app: b}", " *x"),
        ("&x\n  name: a\n  labels: {app: b}", "\n      *x"),
        ("&x {name: a, annotations: {b: c}}", "\n      <<: *x"),
    ],
)
def test_the_record_stays_with_the_object(metadata: str, template: str) -> None:
    placed = assert_placed_as_written_out(job(CONTAINERS, metadata, f"    metadata:{template}\n"))
    [value] = values(placed)
    assert "spotwright.dev/placed" in value["metadata"]["annotations"]
    assert "spotwright.dev/placed" not in value["spec"]["template"]["metadata"].get("annotations", {})


def test_the_record_may_stand_in_an_alias_that_is_written_out() -> None:
    about = "x: &about\n  name: a\n  annotations: {team: t}\n"
    placed = assert_placed_as_written_out(about + job(CONTAINERS, "*about"))
    assert placed.startswith(f"{about}apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: a\n  annotations: ")


WORKFLOW = """\
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {generateName: mk-}
spec:
  entrypoint: cpu
  templates:
  - &cpu
    name: cpu
    container: &c
      image: a:1
      command: [python, a.py]
      resources: {requests: {cpu: 1}}
"""


@pytest.mark.parametrize(
    "other",
    [
        "  - <<: *cpu\n    name: gpu\n    container:\n      <<: *c\n      resources: {limits: {nvidia.com/gpu: 1}}\n",
        "  - name: b\n    <<: *cpu\n  - {<<: *cpu, name: d}\n  - <<: *cpu\n    name: e\n    nodeSelector: {}\n",
        "  - &b\n    <<: *cpu\n    name: b\n  - <<: [*b, *cpu]\n    name: d\n  - <<:\n    - *cpu\n    - *b  # 2\n    name: e\n",
        "  - <<: *cpu\n    name: b\n    container: *c\n    sidecars: [{<<: *c, name: s}]\n",
        "  - <<: {name: z, container: *c, metadata: {labels: {a: b}}}\n    name: b\n",
        "  - name: b\n    dag: {tasks: [{name: a, template: cpu}]}\n    <<: {}\n",
    ],
    ids=["override", "inherit", "lists", "alias beside", "inline", "nothing"],
)
def test_merge_keys_bring_what_the_mapping_needs(other: str) -> None:
    placed = assert_placed_as_written_out(WORKFLOW + other)
    assert "  - &cpu\n" in placed


def test_a_merged_key_that_needs_another_value_is_written_beside_the_merge_key() -> None:
    other = (
        "  - <<: *cpu\n    name: gpu\n    container:\n      <<: *c\n      resources: {limits: {nvidia.com/gpu: 1}}\n"
    )
    placed = assert_placed_as_written_out(WORKFLOW + other)
    assert "  - <<: *cpu\n    tolerations:\n" in placed
    assert "      <<: *c\n      env:\n" in placed
    assert "retryStrategy" not in placed[placed.index("<<: *cpu") :]


def test_a_merge_key_that_would_bring_too_much_is_replaced_by_its_keys() -> None:
    about = "\n  name: a\n  annotations: &x\n    team: t\n    other: u"
    template = "    metadata:\n      annotations:\n        <<: *x  # all\n        other: v\n"
    placed = assert_placed_as_written_out(job(CONTAINERS, about, template))
    assert "        team: t\n        # all\n" in placed
    assert "<<" not in placed[placed.index("spec:\n") :]


def test_scalars_that_are_written_out_keep_their_words() -> None:
    words = [
        "0o17",
        "1_000",
        "~",
        "yes",
        "'it''s'",
        '"a\\tb"',
        "!!str 5",
        "!vault abc",
        "1:30",
        "-1",
        "a:b",
        "2001-12-14",
    ]
    args = "".join(f"            - {word}\n" for word in words)
    text = training(
        f" &pod\n        spec:\n          containers:\n          - name: pytorch\n            image: a\n            args:\n{args}"
        "            - |\n              one\n\n              two\n            - >-\n              folded\n              text\n"
        "            - plain, with [ends]\n            resources: !t {limits: {cpu: 1}}\n",
        " *pod\n",
    )
    placed = assert_placed_as_written_out(text)
    for word in words:
        assert placed.count(f"- {word}\n") + placed.count('!!str "5"') * (word == "!!str 5") >= 2 - (
            word == "!vault abc"
        )
    assert placed.count("            - |\n              one\n\n              two\n") == 2
    assert placed.count("resources: !t {limits: {cpu: 1}}\n") == 2


def test_an_anchor_name_that_is_used_twice_names_the_last_one() -> None:
    text = training(
        " {spec: {containers: [{name: pytorch, image: &a one, env: [{name: A, value: *a}]}]}}",
        " {spec: {containers: [{name: pytorch, image: &a two, env: [{name: A, value: *a}]}]}}",
    )
    assert_placed_as_written_out(text)


def test_a_replaced_number_keeps_its_anchor() -> None:
    text = (
        job("      terminationGracePeriodSeconds: &g 600\n" + CONTAINERS).replace(
            "  template:\n", "  backoffLimit: &g0 2\n  parallelism: *g0\n  template:\n"
        )
        + "x: [*g, *g0]\n"
    )
    settings = a_config("{default: {spot: prefer, grace_period: 20s, errors: {retries: 3}}}")
    placed = place_text(text, FILE, settings).text
    assert values(placed)[0]["x"] == [600, 2]
    assert values(placed)[0]["spec"]["parallelism"] == 2
    assert unplace_text(placed, FILE).text == text


@pytest.mark.parametrize(
    "text",
    [
        job(CONTAINERS, "{name: a, annotations: &x {a: b}}", "    metadata: {annotations: {!!merge <<: *x}}\n"),
        job(CONTAINERS, "{name: a, annotations: &x {1: a, true: b}}", "    metadata: {labels: *x}\n"),
        job(
            CONTAINERS,
            "\n  ? name\n  : a\n  ? labels\n  : &x\n    ? a\n    : b",
            "    metadata:\n      ? labels\n      : *x\n",
        ),
        f"%TAG !e! tag:example.com,2020:\n---\n{job(CONTAINERS, '!e!meta &x {name: a}')}x: *x\n",
        job("      containers:\n      - &c\n        &n name: m\n        image: *n\n      - *c\n"),
        job(CONTAINERS, "\t&x {name: a}", "    metadata:\t*x \t# tab\n"),
    ],
    ids=["merge tag", "keys of other types", "explicit keys", "tag handles", "anchor of a key", "tabs"],
)
def test_whatever_yaml_allows_around_an_alias_is_placed(text: str) -> None:
    assert_placed_as_written_out(text)


def test_two_documents_share_no_anchors() -> None:
    text = job("      tolerations: &t []\n" + CONTAINERS) + "---\n" + job("      tolerations: *t\n" + CONTAINERS)
    assert refusal(text).startswith("work.yaml:19: the alias *t names no anchor")


LIST = "apiVersion: v1\nkind: List\nitems:\n"
POD = "- apiVersion: v1\n  kind: Pod\n  metadata: {name: a}\n  spec: &pod\n    containers: [{name: a, image: b}]\n"
OTHER = "- apiVersion: v1\n  kind: Pod\n  metadata: {name: b}\n  spec:"
LISTS = {
    "alias": f"{LIST}{POD}{OTHER} *pod\n",
    "merge": f"{LIST}{POD}{OTHER}\n    <<: *pod\n    priority: 3\n",
    "item": f"{LIST}{POD.replace('- a', '- &all' + chr(10) + '  a', 1)}- <<: *all\n  metadata: {{name: b}}\n- *all\n",
    "before": f"x: &pod {{containers: [{{name: a, image: 'b'}}]}}\n{LIST}{OTHER} *pod\n{OTHER.replace('b', 'c')} {{<<: *pod}}\n",
    "nested": f"{LIST}{POD}- apiVersion: v1\n  kind: List\n  items:\n  {OTHER} *pod\n".replace(
        "  - apiV", "  -\n    apiV"
    ).replace("kind: Pod\n  metadata: {name: b}\n  spec: *", "  kind: Pod\n    metadata: {name: b}\n    spec: *"),
    "flow": """\
{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: &p {containers:
 [{name: a, image: b}]}},
 {apiVersion: v1, kind: Pod, metadata: {name: b}, spec: *p}]}
""",
    "labels": """\
apiVersion: v1
kind: List
items:
  - apiVersion: batch/v1
    kind: Job
    metadata: {name: a, labels: &l {a: b}}
    spec: {template: {metadata: {labels: *l}, spec: {restartPolicy: Never, containers: [{name: a, image: b}]}}}
  - apiVersion: v1
    kind: Pod
    metadata: {name: b, labels: *l}
    spec: {containers: [{name: a, image: b}]}
""",
}


@pytest.mark.parametrize("text", LISTS.values(), ids=LISTS)
def test_items_of_a_list_may_share_anchors(text: str) -> None:
    for one in (text, text.replace("\n", "\r\n"), text.rstrip("\n"), f"---\n{text}---\n{text}"):
        placed = assert_placed_as_written_out(one)
        assert placed.count("spotwright.dev/placed") >= 2


def test_an_object_that_is_not_placed_keeps_its_value_or_the_file_is_refused_with_the_way_out() -> None:
    service = "- apiVersion: v1\n  kind: Service\n  metadata: {name: s}\n  spec: {selector: *l}\n"
    pods = POD.replace("name: a}", "name: a, labels: &l {app: a}}", 1)
    assert refusal(f"{LIST}{pods}{service}") == (
        "work.yaml:12: spec.selector: this shares an anchor with another object, which is changed; write its aliases out "
        "first, with mikefarah's yq 4.47 or later: yq --yaml-fix-merge-anchor-to-spec -i 'explode(.)' work.yaml"
    )
    whole = POD.replace("- a", "- &all\n  a", 1) + "- <<: *all\n  kind: Service\n  spec: {}\n"
    assert "this shares an anchor with another object" in refusal(f"{LIST}{whole}")
    first = service.replace("*l", "&l {app: a}") + POD.replace("name: a}", "name: a, labels: *l}", 1)
    assert "spec: {selector: &l {app: a}}\n" in assert_placed_as_written_out(f"{LIST}{first}")


def test_an_alias_outside_the_items_is_refused_if_its_anchor_is_changed() -> None:
    assert refusal(f"{LIST}{POD}x: *pod\n").startswith("work.yaml:9: the alias *pod stands outside the items")
    assert refusal(f"x: &pod {{kind: Pod}}\n{LIST}- *pod\n").startswith(
        "work.yaml:1: items[0]: this item is an alias of something outside the list"
    )


def test_items_that_share_megabytes_by_aliases_are_refused_at_once() -> None:
    shared = f"x: &x {'y' * 1_000_000}\n"
    items = "".join(f"{OTHER} {{containers: [{{name: a, image: *x}}]}}\n" for _ in range(30))
    assert "share too much by aliases" in refusal(f"{shared}{LIST}{items}")


def test_templates_that_share_megabytes_by_aliases_are_refused_at_once() -> None:
    container = f"  - &t\n    name: main\n    container: {{image: a, args: [{'y' * 1_000_000}]}}\n"
    others = "".join(f"  - {{<<: *t, name: t{index}}}\n" for index in range(30))
    text = f"{WORKFLOW[: WORKFLOW.index('  - &cpu')].replace('cpu', 'main')}{container}{others}"
    assert "more than 20,000,000 characters that aliases share would be written out" in refusal(text)


def test_a_value_of_an_anchor_that_somebody_changed_stays_with_a_warning() -> None:
    text = training(" &pod\n        spec:\n          containers:\n          - {name: pytorch, image: a}\n", " *pod\n")
    placed = place(text).text
    changed = placed.replace("terminationGracePeriodSeconds: 25", "terminationGracePeriodSeconds: 26")
    undone = unplace_text(changed, FILE)
    assert any("was changed since it was placed" in finding.text for finding in undone.findings)
    assert values(undone.text)[0]["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"] == {
        "terminationGracePeriodSeconds": 26,
        "containers": [{"name": "pytorch", "image": "a"}],
    }


def test_comments_and_anchors_stay_when_the_rest_was_changed_by_hand() -> None:
    text = training(
        " &pod  # all roles\n        spec:\n          containers: &c\n          - {name: pytorch, image: a}\n",
        " *pod\n",
    )
    placed = place(text, PREFER).text
    undone = unplace_text(placed.replace("replicas: 3", "replicas: 4"), FILE).text
    assert values(undone) == values(text.replace("replicas: 3", "replicas: 4"))
    assert "template: &pod  # all roles\n" in undone


def test_an_item_whose_anchor_was_renamed_since_is_refused_and_not_broken() -> None:
    placed = place_text(LISTS["alias"], FILE, a_config(PREFER)).text
    renamed = placed.replace("spec: &pod", "spec: &other")
    with pytest.raises(
        ManifestError, match=r"^work.yaml:3: items: .* an anchor was changed since it was placed: work.yaml:\d+: "
    ):
        unplace_text(renamed, FILE)
