// What was planned before the run, and where the run came out: intervals by policy, the run as a line across them.
import { html } from "htm/preact";
import { runPath } from "../api.js";
import { duration, money, percent } from "../format.js";
import { Intervals } from "../parts/chart.js";
import { Command, Empty, Loading, Problem } from "../parts/common.js";
import { useDocument } from "../parts/load.js";

export function Plan({ run }) {
  const { answer, error, retry } = useDocument(runPath(run.name, "plan"), {}, { live: run.driven.value });
  if (!answer) return error ? html`<${Problem} error=${error} retry=${retry} />` : html`<${Loading} what="the plan" />`;
  if (!answer.policies?.length) {
    return html`<${Empty}><p>No plan is beside this run. To have one beside the next run:</p>
      <${Command} text="spotwright plan pipeline.py --json > plan.json" />
      <${Command} text="spotwright run pipeline.py --plan plan.json" /><//>`;
  }
  const currency = answer.currency ?? "";
  const cost = (number) => (number === null ? "never" : currency ? money(number, currency) : `${money(number)} h`);
  const rows = (key) =>
    answer.policies.map((policy) => ({ name: policy.name, best: policy.name === answer.best, ...policy[key], bins: policy.bins?.[key], words: words(policy[key], key === "cost" ? cost : duration) }));
  return html`<section class="view view-plan" aria-label="Plan">
    <p>${answer.why}</p>
    <h2>Cost</h2>
    <${Intervals} rows=${rows("cost")} actual=${answer.actual?.cost} text=${cost} caption="Planned cost by policy, and the actual cost" />
    ${answer.actual?.cost_words && html`<p>${answer.actual.cost_words}</p>`}
    <h2>End</h2>
    <${Intervals} rows=${rows("finish")} actual=${answer.actual?.end} text=${(seconds) => (seconds === null ? "never" : duration(seconds))} caption="Planned end by policy, and the actual end" />
    ${answer.actual?.end_words && html`<p>${answer.actual.end_words}</p>`}
    <div class="scroll"><table class="plain"><thead><tr><th>Policy</th><th class="number">Cost p10</th><th class="number">p50</th><th class="number">p90</th><th class="number">p99</th><th class="number">End p10</th><th class="number">p50</th><th class="number">p90</th><th class="number">p99</th><th class="number">Late</th><th class="number">Interruptions</th></tr></thead>
      <tbody>${answer.policies.map((policy) => html`<tr key=${policy.name}><td>${policy.name}${policy.name === answer.best ? " (best)" : ""}</td>
        ${["p10", "p50", "p90", "p99"].map((key) => html`<td key=${key} class="number">${cost(policy.cost[key])}</td>`)}
        ${["p10", "p50", "p90", "p99"].map((key) => html`<td key=${key} class="number">${policy.finish[key] === null ? "never" : duration(policy.finish[key])}</td>`)}
        <td class="number">${percent(policy.late)}</td><td class="number">${policy.interruptions.toFixed(1)}</td></tr>`)}</tbody></table></div>
    ${answer.expected_end && html`<p>${answer.expected_end}</p>`}
  </section>`;
}

const words = (values, text) => ["p10", "p50", "p90", "p99"].map((key) => `${key} ${text(values[key])}`).join(", ");
