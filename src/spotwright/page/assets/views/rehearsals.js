// Rehearsals of this project: the verdict on every step, and the report of one as `spotwright rehearse` printed it.
import { html } from "htm/preact";
import { count, dateTime, duration, moment } from "../format.js";
import { Command, Empty, Loading, Problem } from "../parts/common.js";
import { useDocument } from "../parts/load.js";
import { href, route } from "../routes.js";

export function Rehearsals() {
  const name = route.value.params.get("name") ?? "";
  const { answer, error, retry } = useDocument("rehearsals", { name });
  const found = answer?.rehearsals ?? [];
  return html`<main class="view view-rehearsals"><h1>${name ? html`Rehearsal ${name}` : "Rehearsals"}</h1>
    ${name && html`<p><a href=${href("rehearsals")}>All rehearsals</a></p>`}
    ${error && html`<${Problem} error=${error} retry=${retry} />`}
    ${!answer && !error && html`<${Loading} what="rehearsals" />`}
    ${answer && !name && !found.length && html`<${Empty}><p>No rehearsals here yet. To see whether a step survives an interruption:</p>
      <${Command} text="spotwright rehearse pipeline.py --task train" /><//>`}
    ${!name && found.length > 0 && html`<div class="scroll" tabindex="0" role="region" aria-label="Rehearsals"><table class="plain">
      <thead><tr><th>Rehearsal</th><th>Ended</th><th>Verdicts</th></tr></thead>
      <tbody>${found.map((each) => html`<tr key=${each.name}>
        <td>${each.steps.length ? html`<a href=${href("rehearsals", "", { name: each.name })}>${each.name}</a>` : each.name}</td>
        <td><span title=${moment(each.changed_at)}>${dateTime(each.changed_at)}</span></td>
        <td>${each.problem || (each.steps.length ? each.steps.map((step) => html`<div key=${step.task}>${step.task}: <strong>${step.verdict}</strong></div>`) : "no report: it goes on, was stopped, or is of an earlier version")}</td></tr>`)}</tbody></table></div>`}
    ${answer && answer.of > found.length && html`<p class="note">${count(answer.of - found.length)} older ones are left out.</p>`}
    ${name && answer?.report && html`<${Report} report=${answer.report} />`}
  </main>`;
}

function Report({ report }) {
  return html`<pre class="printed" tabindex="0" role="region" aria-label="The report as it was printed">${report.text}</pre>
    ${report.steps.map((step) => html`<section key=${step.task} aria-label=${step.task}><h2>${step.task}: ${step.verdict}</h2>
      <div class="scroll" tabindex="0" role="region" aria-label=${`Points of ${step.task}`}><table class="plain"><thead><tr><th>Interrupted</th><th>Result</th><th class="number">Lost</th><th>Run</th></tr></thead>
      <tbody>${step.points.map((point) => html`<tr key=${point.name}><td>${point.name}</td><td>${result(point)}</td>
        <td class="number">${point.lost_seconds === null ? "" : duration(point.lost_seconds)}</td><td>${point.run ?? ""}</td></tr>`)}</tbody></table></div></section>`)}
    <h2>The runs of its trials</h2>
    <${Command} text=${`spotwright page --state ${quoted(report.state)}`} />`;
}

function result(point) {
  if (point.problem) return point.problem;
  if (point.run === null) return "not tried";
  if (!point.interrupted) return point.not_traced ? `not traced: ${point.not_traced}` : "the step finished before";
  return "survived";
}

// A path as one word of a command line.
const quoted = (path) => (/^[A-Za-z0-9_./~-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`);
