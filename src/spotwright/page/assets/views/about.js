// What a run was given and gave: commands, notes, arguments, outputs, artifacts, budgets, environments, links.
import { html } from "htm/preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { get, runPath } from "../api.js";
import { count, duration, moment, offset, plural } from "../format.js";
import { Command, Loading, Problem } from "../parts/common.js";
import { Artifact } from "../parts/artifacts.js";
import { Outside, Value } from "../parts/values.js";
import { href, route, set } from "../routes.js";

const AT_FIRST = 50; // rows of a list before somebody asks for all

export function About({ run }) {
  const head = run.head.value;
  const task = route.value.params.get("task") ?? "";
  const commands = Object.entries(head.commands).filter(([, text]) => text);
  const argumentsOf = Object.entries(head.arguments);
  const outputs = Object.entries(head.outputs);
  return html`<section class="view view-about" aria-label="About">
    <h2>Commands</h2>
    <p class="note">This page only reads. What changes something is typed.</p>
    ${commands.map(([name, text]) => html`<${Command} key=${name} label=${name} text=${text} />`)}
    ${head.links.kfp && html`<p>Kubeflow Pipelines: <${Outside} address=${head.links.kfp}>the page of this run<//></p>`}
    ${head.notes.length > 0 && html`<h2>Notes</h2><ul>${head.notes.map((note, index) => html`<li key=${index}>${note}</li>`)}</ul>`}
    <h2>Arguments</h2>
    ${argumentsOf.length ? html`<${Named} name="Arguments" rows=${argumentsOf} />` : html`<p class="note">It was given none.</p>`}
    <h2>Outputs</h2>
    ${outputs.length ? html`<${Named} name="Outputs" rows=${outputs.map(([name, output]) => [name, html`<${Output} output=${output} />`])} drawn />` : html`<p class="note">It has none${head.summary.status === "running" ? " yet" : ""}.</p>`}
    <h2 id="artifacts">Artifacts</h2>
    ${head.artifacts.length ? html`<${Artifacts} head=${head} run=${run} task=${task} />` : html`<p class="note">No task has made one${head.summary.status === "running" ? " yet" : ""}.</p>`}
    ${head.budgets.length > 0 && html`<h2>Spent of budgets</h2><${Budgets} head=${head} run=${run} />`}
    ${head.left_out.length > 0 && html`<h2>Pools left out for now</h2>
      <ul>${head.left_out.map((each) => html`<li key=${each.pool}>${each.pool}, until <span title=${moment(each.until)}>${offset(each.until - run.t0)}</span>: waited for in vain ${plural(each.times, "time")}</li>`)}</ul>`}
    ${head.environments.length > 0 && html`<h2>Python environments</h2>${head.environments.map((each) => html`<${Environment} key=${each.packages.join(" ")} environment=${each} run=${run} />`)}`}
    <h2>Run</h2>
    <dl class="facts">
      <div><dt>began</dt><dd>${moment(head.summary.started_at)}</dd></div>
      ${head.summary.finished_at !== null && html`<div><dt>ended</dt><dd>${moment(head.summary.finished_at)}</dd></div>`}
      <div><dt>seed</dt><dd>${head.summary.seed}</dd></div>
      ${head.summary.orchestrator && html`<div><dt>made by</dt><dd>${head.summary.orchestrator}</dd></div>`}
      ${head.summary.namespace && html`<div><dt>namespace</dt><dd>${head.summary.namespace}</dd></div>`}
      ${head.summary.prices && html`<div><dt>prices</dt><dd>${head.summary.prices}</dd></div>`}
      ${head.summary.time_scale !== 1 && html`<div><dt>time scale</dt><dd>${head.summary.time_scale}</dd></div>`}
    </dl>
  </section>`;
}

// Names with values. `drawn`: the values are parts of the page already.
function Named({ name, rows, drawn = false }) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${name}><table class="plain named"><tbody>${rows.map(
    ([key, value]) => html`<tr key=${key}><th scope="row">${key}</th><td>${drawn ? value : html`<${Value} value=${value} />`}</td></tr>`,
  )}</tbody></table></div>`;
}

function Output({ output }) {
  if (output.kind === "parameter") return html`<${Value} value=${output.value} />`;
  const several = output.kind === "artifacts" ? output.artifacts : [output];
  return html`${several.map((each, index) => html`<div key=${index}>${each.type} <${Outside} address=${each.uri} />${
    Object.keys(each.metadata ?? {}).length > 0 ? html`<details><summary>metadata</summary><${Value} value=${each.metadata} /></details>` : ""
  }</div>`)}`;
}

function Artifacts({ head, run, task }) {
  const [all, setAll] = useState(false);
  const tasks = [...new Set(head.artifacts.map((each) => each.task))];
  const shown = all ? tasks : tasks.slice(0, AT_FIRST);
  return html`<div class="artifacts">
    ${shown.map((name) => {
      const own = head.artifacts.filter((each) => each.task === name);
      const isOpen = name === task;
      return html`<div class="artifacts-of" key=${name}>
        <button type="button" class="opener" aria-expanded=${isOpen} onClick=${() => set({ task: isOpen ? "" : name })}><span aria-hidden="true">${isOpen ? "▾" : "▸"}</span> <code>${name}</code> <span class="note">${own.map((each) => each.name).join(", ")}</span></button>
        ${isOpen && html`<${OfTask} run=${run} task=${name} />`}
      </div>`;
    })}
    ${tasks.length > shown.length && html`<button type="button" onClick=${() => setAll(true)}>Show ${count(tasks.length - shown.length)} more tasks</button>`}
    ${head.artifacts_of > head.artifacts.length && html`<p class="note">These are ${count(head.artifacts.length)} of ${count(head.artifacts_of)} artifacts; spotwright show --json has all.</p>`}
  </div>`;
}

function OfTask({ run, task }) {
  const place = useRef(null);
  const [answer, setAnswer] = useState(null);
  const [error, setError] = useState(null);
  useEffect(() => {
    const stop = new AbortController();
    get(runPath(run.name, "artifacts"), { task }, { signal: stop.signal }).then(setAnswer, (problem) => problem.name !== "AbortError" && setError(problem));
    return () => stop.abort();
  }, [task, run.made]);
  useEffect(() => {
    if (answer) place.current.scrollIntoView({ block: "nearest" });
  }, [answer]);
  if (error) return html`<${Problem} error=${error} />`;
  if (!answer) return html`<${Loading} what="artifacts" />`;
  return html`<div class="artifact-list" ref=${place}>${answer.artifacts.map((artifact, index) => html`<${Artifact} key=${index} artifact=${artifact} run=${run} task=${task} />`)}</div>`;
}

function Budgets({ head, run }) {
  const cell = (budget) => html`<td class="number">${budget.max || budget.spent ? html`${count(budget.spent)} <span class="of">of ${count(budget.max)}</span>` : html`<span class="of">–</span>`}</td>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Spent of budgets"><table class="plain budgets">
    <thead><tr><th scope="col">Task</th><th scope="col" class="number">Interruptions</th><th scope="col" class="number">Errors</th><th scope="col" class="number">Moves</th></tr></thead>
    <tbody>${head.budgets.slice(0, AT_FIRST).map((each) => html`<tr key=${each.task}><th scope="row"><a href=${href("attempt", run.name, { task: each.task })}>${each.task}</a></th>${cell(each.interruptions)}${cell(each.errors)}${cell(each.moves)}</tr>`)}</tbody>
  </table></div>`;
}

function Environment({ environment, run }) {
  return html`<div class="environment">
    <p><strong>${environment.status}</strong> in ${duration(environment.seconds)}, for ${plural(environment.of, "task")}: ${environment.tasks.slice(0, 5).map(
      (task, index) => html`${index ? ", " : ""}<a key=${task} href=${href("log", run.name, { task, environment: "1" })}>${task}</a>`,
    )}${environment.of > 5 ? "…" : ""} <span class="note">(links to its log)</span></p>
    <p><code>${environment.packages.join(" ")}</code></p>
    ${environment.why && html`<p>${environment.why}</p>`}
    ${environment.last_lines?.length > 0 && html`<pre tabindex="0">${Array.isArray(environment.last_lines) ? environment.last_lines.join("\n") : environment.last_lines}</pre>`}
    ${environment.log && html`<${Command} label="log" text=${environment.log} />`}
  </div>`;
}
