"""Container components: commands of an image, from Python and from component YAML."""

from typing import List, Optional

from components import text, whole, write
from kfp import components, dsl
from kfp.dsl import ConcatPlaceholder, IfPresentPlaceholder

__all__ = [
    "container_artifacts",
    "container_lists",
    "container_outputs",
    "container_placeholders",
    "container_variables",
    "container_yaml",
]

ECHO = ["sh", "-c", 'out="$0"; mkdir -p "$(dirname "$out")"; printf "[%s]" "$@" > "$out"']


@dsl.container_component
def placed(
    value: str, number: float, listed: list, out: dsl.OutputPath(str), given: Optional[str] = None, left: Optional[str] = None
):  # fmt: skip
    return dsl.ContainerSpec(
        image="alpine",
        command=ECHO,
        args=[
            out, value, f"{number}/{listed}", ConcatPlaceholder(["<", value, IfPresentPlaceholder("left", "+", "-"), ">"]),
            IfPresentPlaceholder("given", ["--given", given]), IfPresentPlaceholder("left", ["--left", left], ["--no-left"]),
        ],
    )  # fmt: skip


@dsl.pipeline
def container_placeholders(quoted: str = 'it\'s "a" $(A) $x {{$.pipeline_job_id}}'):
    """Inputs in commands: values with quotes and signs, numbers, lists, Concat and IfPresent. kfp.local: needs docker"""
    placed(value=quoted, number=0.5, listed=[1, "b", {"c": 2.0}], given="g")
    placed(value=text(value="from a task").output, number=3.0, listed=[])


@dsl.container_component
def outputs(
    whole: dsl.OutputPath(int), real: dsl.OutputPath(float), flag: dsl.OutputPath(bool), items: dsl.OutputPath(List[int]),
    pairs: dsl.OutputPath(dict), words: dsl.OutputPath(str),
):  # fmt: skip
    script = (
        "echo 7 > $0; echo 2.50 > $1; echo True > $2; echo '[1, 2]' > $3; echo '{\"a\": 1}' > $4; printf 'a\\n' > $5"
    )
    return dsl.ContainerSpec(
        image="alpine", command=["sh", "-c", script], args=[whole, real, flag, items, pairs, words]
    )


@dsl.pipeline
def container_outputs() -> int:
    """Output parameters as files, of every type, read by Python components. kfp.local: needs docker"""
    made = outputs()
    text(value=made.outputs["words"])
    return whole(value=made.outputs["whole"]).output


@dsl.container_component
def upper(data: dsl.Input[dsl.Dataset], out: dsl.Output[dsl.Model]):
    return dsl.ContainerSpec(
        image="alpine",
        command=["sh", "-c", 'tr a-z A-Z < "$0" > "$1"; test "$0" = "$2"; mkdir "$1.d"; echo x > "$1.d/file"'],
        args=[data.path, out.path, data.uri],
    )


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def of_model(model: dsl.Input[dsl.Model]) -> str:
    with open(model.path) as file:
        return file.read() + type(model).__name__


@dsl.pipeline
def container_artifacts():
    """Artifacts in and out of commands. kfp.local: needs docker"""
    of_model(model=upper(data=write(value="text").outputs["out"]).outputs["out"])


@dsl.container_component
def joined(several: dsl.Input[List[dsl.Dataset]], out: dsl.OutputPath(str)):
    script = (
        "import json, sys; texts = [open(each['uri']).read() for each in json.loads(sys.argv[1])]; "
        "print(*texts, file=open(sys.argv[2], 'w'))"
    )
    return dsl.ContainerSpec(image="python:3.11", command=["python3", "-c", script], args=[several, out])


@dsl.pipeline
def container_lists():
    """Lists of artifacts as arguments of commands. kfp.local: needs docker"""
    with dsl.ParallelFor(["a", "b", "c"]) as each:
        written = write(value=each)
    joined(several=dsl.Collected(written.outputs["out"]))


@dsl.container_component
def told(out: dsl.OutputPath(str)):
    args = [out, "$(A)", "$(B)", "$(NOBODY)", "$$(A)", "$A"]
    return dsl.ContainerSpec(image="alpine", command=ECHO, args=args)


@dsl.pipeline
def container_variables():
    """Variables of a task, `$(NAME)` as Kubernetes expands it. kfp.local: needs docker"""
    told().set_env_variable("A", "a").set_env_variable("B", "$(A)b")


KFP_1 = components.load_component_from_text("""
name: Of kfp 1
inputs:
- {name: Some text, type: String}
- {name: data, type: Dataset}
- {name: number, type: Integer, default: '3'}
- {name: flag, type: Boolean, optional: true}
outputs:
- {name: made, type: Dataset}
- {name: count, type: Integer}
implementation:
  container:
    image: alpine
    command: [sh, -c, 'made="$1"; count="$2"; shift 2; { cat "$0"; echo " $*"; } > "$made"; echo 5 > "$count"']
    args:
    - {inputPath: data}
    - {outputPath: made}
    - {outputPath: count}
    - {inputValue: Some text}
    - {concat: ['n=', {inputValue: number}]}
    - {if: {cond: {isPresent: flag}, then: [--flag, {inputValue: flag}], else: [--no-flag]}}
""")

KFP_2 = components.load_component_from_text("""
components:
  comp-join:
    executorLabel: exec-join
    inputDefinitions: {parameters: {a: {parameterType: STRING}, n: {parameterType: NUMBER_INTEGER}}}
    outputDefinitions: {parameters: {out: {parameterType: STRING}}}
deploymentSpec:
  executors:
    exec-join:
      container:
        image: alpine
        command: [sh, -c, 'printf "%s-%s" "$1" "$2" > "$0"']
        args: ["{{$.outputs.parameters['out'].output_file}}", "{{$.inputs.parameters['a']}}", "{{$.inputs.parameters['n']}}"]
pipelineInfo: {name: join}
root:
  dag:
    outputs: {parameters: {out: {valueFromParameter: {outputParameterKey: out, producerSubtask: join}}}}
    tasks:
      join:
        componentRef: {name: comp-join}
        inputs: {parameters: {a: {componentInputParameter: a}, n: {componentInputParameter: n}}}
        taskInfo: {name: join}
  inputDefinitions: {parameters: {a: {parameterType: STRING}, n: {parameterType: NUMBER_INTEGER}}}
  outputDefinitions: {parameters: {out: {parameterType: STRING}}}
schemaVersion: 2.1.0
sdkVersion: kfp-2.17.0
""")


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def of_data(data: dsl.Input[dsl.Dataset]) -> str:
    with open(data.path) as file:
        return file.read()


@dsl.pipeline
def container_yaml():
    """Components from YAML of kfp 1 (inputValue, inputPath, outputPath, if, concat) and of kfp 2. kfp.local: needs docker"""
    old = KFP_1(some_text="it's", data=write(value="d").outputs["out"])
    of_data(data=old.outputs["made"])
    KFP_2(a="x", n=old.outputs["count"])
