"""The expected result of every conformance pipeline: the values that the KFP backend gives, types included."""

from __future__ import annotations

from typing import Any

from tests.conformance.compiling import PIPELINES
from tests.conformance.expected_pods import EXPECTED_PODS
from tests.conformance.running import Expected

__all__ = ["EXPECTED"]


def tasks(*paths: str) -> frozenset[str]:
    return frozenset(paths)


def iterations(path: str, *values: Any) -> dict[str, Any]:
    """The values of a task in a loop, by iteration."""
    return {f"{path}-{number}": value for number, value in enumerate(values)}


DEEP = {"a": [1, 2.5, {"b": "x"}], "c": True}
FAILS = "{} failed: RuntimeError: {}"
WORDS = str(PIPELINES / "embedded" / "words.txt")
BRANCHES = "condition-branches-1"

EXPECTED: dict[str, Expected] = {
    **EXPECTED_PODS,
    # conditions
    "comparisons": Expected(
        {
            "whole": 3, "real": 2.5, "truth": True, "condition-1/text": "equal", "condition-3/text-3": "at least",
            "condition-5/text-5": "greater", "condition-7/text-7": "true", "condition-9/text-9": "before c",
        },
        skipped=tasks("condition-2", "condition-4", "condition-6", "condition-8", "condition-10"),
    ),
    "quoted_texts": Expected(
        {
            "text-6": "it's", f"{BRANCHES}/condition-2/text": "a", "condition-branches-4/condition-5/text-3": "b",
            "condition-branches-7/condition-9/text-7": "c",
        },
        skipped=tasks(
            f"{BRANCHES}/condition-3", "condition-branches-4/condition-6", "condition-branches-7/condition-8"
        ),
    ),
    "elif_chain": Expected(
        {f"{BRANCHES}/condition-3/text-2": "second", "text-5": "second"},
        outputs={"Output": "second"},
        skipped=frozenset(f"{BRANCHES}/condition-{number}" for number in (2, 4, 5)),
    ),
    "one_of_parameters": Expected(
        {f"{BRANCHES}/condition-3/whole-2": 2, "add": 42},
        outputs={"Output": 2},
        skipped=tasks(f"{BRANCHES}/condition-2"),
    ),
    "one_of_artifacts": Expected(
        {"read": "yes"}, outputs={"Output": "yes"}, skipped=tasks(f"{BRANCHES}/condition-3")
    ),
    "conditions_nested": Expected(
        {
            "whole": 1, "condition-3/whole-2": 2, "for-loop-1/condition-2-1/text": "two 2",
            "condition-3/for-loop-5/condition-6-1/text-2": "y",
        },
        skipped=tasks(
            "for-loop-1/condition-2-0", "for-loop-1/condition-2-2", "condition-3/for-loop-5/condition-6-0",
            "condition-3/condition-7",
        ),
    ),
    # loops
    "loop_over_constants": Expected(
        {
            **iterations("wholes/whole", 1, 2, 30), **iterations("reals/real", 0.5, 1.25),
            **iterations("texts/text", "it's", 'say "x"'), **iterations("mappings/whole-2", 1, 2),
            **iterations("mappings/mapping", {"a": 1, "b": 10}, {"a": 2, "b": 20}),
            **iterations("mappings/text-2", "b10", "b20"),
        }
    ),
    "loop_over_parameters": Expected(
        {
            **iterations("numbers/whole", 4, 5), **iterations("words/text", "a!", "b!"),
            **iterations("anything/text-2", "1", "x"),
        },
        arguments={"numbers": [4, 5]},
    ),
    "loop_over_outputs": Expected(
        {
            "items": [1, 20, 3000000000], "items-2": [{"n": {"deep": [1, 2.5, True]}}],
            **iterations("loop/whole", 1, 20, 3000000000),
            **iterations("mappings/seen", "{'n': {'deep': [1, 2.5, True]}}"),
        }
    ),
    "loop_over_fields": Expected(
        {
            **iterations("rows/text", "a", "b"), **iterations("rows/sizes-0/whole", 1, 2),
            **iterations("rows/sizes-0/text-2", "a1", "a2"), "rows/sizes-1/whole-0": 3, "rows/sizes-1/text-2-0": "b3",
        }
    ),
    "loop_in_loop": Expected(
        {
            "a/b-0/c-0/add-0": 11, "a/b-0/c-0/add-2-0": 111, "a/b-0/c-1/add-0": 21, "a/b-0/c-1/add-2-0": 121,
            "a/b-1/c-0/add-0": 12, "a/b-1/c-0/add-2-0": 112, "a/b-1/c-1/add-0": 22, "a/b-1/c-1/add-2-0": 122,
        }
    ),
    "loop_over_nothing": Expected({"total": 0}),
    "loop_over_artifacts": Expected(iterations("loop/read", "p", "q")),
    "loop_limit": Expected(
        {**iterations("loop/add", 2, 4, 6, 8, 10), **iterations("loop/whole", 2, 4, 6, 8, 10)}
    ),
    "loop_with_retries": Expected(iterations("loop/flaky", 1, 2, 3)),
    "loop_with_tasks_that_follow": Expected(
        {
            **iterations("loop/text", "wa", "wb"), **iterations("loop/text-2", "wa2", "wb2"),
            "listed": "['wa2', 'wb2']",
        }
    ),
    "collected_parameters": Expected(
        {**iterations("for-loop-2/add", 6, 2, 4), "total": 12, "kinds-of": "int,int,int"},
        outputs={"Output": [6, 2, 4]},
    ),
    "collected_artifacts": Expected({"read-all": "x,y,z"}, outputs={"Output": ["x", "y", "z"]}),
    "collected_nested": Expected(
        {
            **iterations("for-loop-2/for-loop-4-0/add", 11, 21, 31),
            **iterations("for-loop-2/for-loop-4-1/add", 12, 22, 32), **iterations("for-loop-2/total", 63, 66),
            "listed": "[[11, 21, 31], [12, 22, 32]]", "read-all": "110,120,130,210,220,230",
        }
    ),
    "collected_with_skipped": Expected(
        {
            "for-loop-2/condition-3-0/whole": 1, "for-loop-2/condition-3-2/whole": 3, "listed": "[1, 3]",
            "read-all": "1,3",
        },
        skipped=tasks("for-loop-2/condition-3-1"),
    ),
    # pipelines inside pipelines
    "inside_with_outputs": Expected({"doubling/add": 2, "doubling-2/add": 4, "read": "4"}, outputs={"Output": 4}),
    "inside_with_branches": Expected(
        {
            f"sign/{BRANCHES}/condition-2/text": "below", f"sign-2/{BRANCHES}/condition-3/text-2": "above",
            "for-loop-2/condition-3-1/text": "two",
        },
        skipped=tasks(
            "for-loop-2/condition-3-0", f"sign/{BRANCHES}/condition-3", f"sign-2/{BRANCHES}/condition-2"
        ),
        outputs={"Output": "above"},
    ),
    "inside_with_artifacts": Expected({"reading/read": "given"}, outputs={"Output": "given"}),
    "inside_with_optional_inputs": Expected(
        {
            "optional": "'default' 7 None", "optional-2": "'default' 7 None",
            "options/optional": "'default' 7 'inner'", "options-2/optional": "'given' 3 'given'",
            "options-3/optional": "'default' 7 'inner'",
        }
    ),
    "inside_with_placeholders": Expected({"whole": 4, "saying/text": "<n-4>"}),
    "inside_with_retries": Expected({"trying/not-at-once": 1, "trying/not-at-once-2": 1}, outputs={"Output": 1}),
    # what runs after a failure
    "exit_after_success": Expected(
        {"exit-handler-1/text": "inside", "ending": "COMPLETE exit-handler-1 None bye"}
    ),
    "exit_after_failure": Expected(
        {"guarded/slow": "runs to its end", "ending": f"FAILED guarded {FAILS.format('guarded/fail', 'it broke')}"},
        failed=tasks("guarded", "guarded/fail"),
        open=tasks("guarded/text"),
    ),
    "exit_handlers_several": Expected(
        {
            "ending": f"FAILED one {FAILS.format('one/fail', 'first')} one", "two/slow": "second",
            "two/text": "second", "ending-2": "COMPLETE two None two", "three/text-3": "third", "text-2": "three",
        },
        failed=tasks("one", "one/fail"),
    ),
    "exit_with_pipeline": Expected(
        {"cleaning/text": "clean up", "cleaning/text-2": "clean up"},
        failed=tasks("exit-handler-1", "exit-handler-1/fail"),
    ),
    "exit_in_pipeline_inside": Expected(
        {
            f"{path}ending": f"FAILED exit-handler-1 {FAILS.format(inner, 'inner')} {note}"
            for inner in ("exit-handler-1/guarded/exit-handler-1/fail",)
            for path, note in (("exit-handler-1/guarded/", "inner"), ("", "outer"))
        },
        failed=tasks(
            "exit-handler-1", "exit-handler-1/guarded", "exit-handler-1/guarded/exit-handler-1",
            "exit-handler-1/guarded/exit-handler-1/fail",
        ),
    ),
    "exit_with_loop": Expected(
        {
            **iterations("guarded/loop/slow", "a", "b"),
            "ending": f"FAILED guarded {FAILS.format('guarded/loop/condition-4-0/fail', 'in a')}",
        },
        skipped=tasks("guarded/loop/condition-4-1"),
        failed=tasks(
            "guarded", "guarded/loop", "guarded/loop/condition-4-0", "guarded/loop/condition-4-0/fail"
        ),
    ),
    "out_of_time": Expected(
        {"state-of": "FAILED"}, failed=tasks("guarded", "guarded/never-ends"), open=tasks("guarded/text")
    ),
    "failure_ignored": Expected(
        {"afterwards": "by default", "text-2": "well", "afterwards-2": "well"},
        failed=tasks("fail"),
        open=tasks("text"),
    ),
    "failing_branches": Expected({"slow": "runs on"}, failed=tasks("fail"), open=tasks("text")),
    # parameters and placeholders
    "numbers_and_kinds": Expected(
        {
            "whole": 9007199254740992, "real": 0.1, "truth": True, "mapping": DEEP, "mapping-2": DEEP,
            "seen": "{'a': [1, 2.5, {'b': 'x'}], 'c': True}",
            "described": '{"list": "list", "mapping": "dict", "real": "float", "text": "str", "truth": "bool", "whole": "int"}',
            "kinds-of": "int,float,str,bool,list,dict", "items": [[1, [2, [3]]], {"x": {"y": 1}}],
            "listed": "[[1, [2, [3]]], {'x': {'y': 1}}]",
        }
    ),
    "parameters_by_default": Expected(
        {"text": "a", "whole": 0, "truth": False, "items": [], "mapping": {}, "real": 0.0}
    ),
    "large_values": Expected(
        {
            "repeat": "0123456789abcdef" * 65536, "length": 1048576, "numbers": list(range(200000)), "count": 200000,
        }
    ),
    "written_as_go": Expected(
        {
            "made": {"a": {"c": 2, "d": 1}, "b": [2, 0.5]}, "seen": "{'a': {'c': 2, 'd': 1}, 'b': [2, 0.5]}",
            **iterations("loop/shown", "2.0", "0.5"),
        }
    ),
    "texts_of_values": Expected(
        {"text": '3 0.5 true [1,"a"]', "whole": 3, "real": 0.5, "truth": True, "text-2": "3-0.5-true"}
    ),
    # artifacts
    "artifact_classes": Expected(
        {
            "classes": "Artifact=system.Artifact Dataset=system.Dataset Model=system.Model HTML=system.HTML "
            "Markdown=system.Markdown"
        }
    ),
    "artifact_folders": Expected({"files-in": "below/two one"}),
    "artifact_metadata": Expected(
        {"metadata-of": {"accuracy": 0.5, "layers": [1, 2], "framework": {"name": "x"}}}, outputs={"Output": "m"}
    ),
    "artifact_places": Expected(
        {
            "read": "custom", "read-2": "by uri", "by-path": {"note": "note path"}, "from-path": "path",
            "text": "note path",
        }
    ),
    "metrics": Expected(
        {
            "measured": {
                "metrics": {"accuracy": 0.75, "count": 3},
                "matrix": {
                    "annotationSpecs": [{"displayName": "a"}, {"displayName": "b"}],
                    "rows": [{"row": [1, 2]}, {"row": [3, 4]}],
                },
                "slices": ["slice"],
            }
        }
    ),
    "artifact_without_file": Expected({"is-there": False}),
    "artifact_classes_of_others": Expected({"prompted": ["Prompt", "google.Prompt", {"shots": 3}, "Artifact", "say"]}),
    "artifact_embedded": Expected({"of-folder": "embedded", "of-file": "embedded"}),
    # the rest
    "importers": Expected(
        {
            "place-of": {"class": "Dataset", "uri": "gs://bucket/data.csv", "metadata": {}},
            "place-of-2": {"class": "Dataset", "uri": "gs://bucket/given", "metadata": {"n": 1, "note": "n"}},
        }
    ),
    "importers_of_files": Expected({"read": "embedded\n", "read-2": "embedded\n"}),
    "notebooks": Expected({"book": "it's it's "}),
    "workspace": Expected({"keep": "workspace", "kept": "shared", "keeping/kept": "shared"}),
    "optional_artifacts": Expected(
        {
            "maybe": "True True",
            "maybe-2": "False True",
            "passing-on/maybe": "True True",
            "passing-on-2/maybe": "False True",
        }
    ),
    "artifacts_given": Expected(
        {
            "read": "embedded\n",
            "address-and-metadata": {"uri": "gs://bucket/given", "metadata": {"n": 1}},
            "read-all": "embedded\n,embedded\n",
        },
        arguments={
            "file": WORDS,
            "address": {"uri": "gs://bucket/given", "metadata": {"n": 1.0}},
            "many": [WORDS, f"file://{WORDS}"],
        },
    ),
    "additional_functions": Expected({"helped": "LOUD"}),
    "environment": Expected({"variable": "it's set", "variable-2": "nothing"}),
    "resources_from_outputs": Expected(
        {
            "amount": "256Mi",
            "whole": 1,
            **iterations("loop/amount-2", "256Mi", "256Mi"),
            **iterations("loop/whole-2", 1, 2),
        }
    ),
    "resources_in_groups": Expected(
        {
            "text": "done",
            "exit-handler-1/loop/asks-for-0": {"limits": {"memory": "256Mi"}, "requests": {"memory": "1Gi"}},
            "exit-handler-1/loop/asks-for-1": {"limits": {"memory": "256Mi"}, "requests": {"memory": "2Gi"}},
            **{
                f"exit-handler-1/loop/condition-4-{n}/asks-for-2":
                {"limits": {"example.com/device": "2"}, "requests": {"cpu": "2"}} for n in (0, 1)
            },
            "inside-of/condition-1/asks-for": {"limits": {"cpu": "1500m"}},
        }
    ),
}  # fmt: skip
