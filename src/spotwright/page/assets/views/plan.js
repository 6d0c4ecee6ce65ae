// What was planned before the run, and where the run came out: intervals by policy, the run as a line across them.
import { html } from "htm/preact";
import { runPath } from "../api.js";
import { duration, money } from "../format.js";
import { clockTicks, Intervals } from "../parts/chart.js";
import { Command, Empty, Loading, Problem } from "../parts/common.js";
import { useDocument } from "../parts/load.js";

export function Plan({ run }) {
  const { answer, error, retry } = useDocument(runPath(run.name, "plan"), {}, { live: run.driven.value });
  if (!answer) return error ? html`<${Problem} error=${error} retry=${retry} />` : html`<${Loading} what="the plan" />`;
  if (!answer.policies.length) {
    return html`<${Empty}><p>${answer.why}.</p>
      <${Command} text="spotwright plan pipeline.py --json > plan.json" />
      <${Command} text="spotwright run pipeline.py --plan plan.json" /><//>`;
  }
  const currency = answer.currency ?? "";
  const cost = (number) => (number === null ? "never" : currency ? money(number, currency) : `${money(number)} h`);
  const end = (seconds) => (seconds === null ? "never" : duration(seconds));
  const rows = (key, text) =>
    answer.policies.map((policy) => ({ name: policy.name, best: policy.is_own, ...policy[key], bins: policy.bins?.[key], words: words(policy[key], text) }));
  const actual = answer.actual;
  return html`<section class="view view-plan" aria-label="Plan">
    ${answer.why && html`<p class="problem">${answer.why}</p>`}
    ${answer.text.length > 0 && html`<pre>${answer.text.join("\n")}</pre>`}
    <h2>Cost${actual?.so_far ? html` <span class="note">so far</span>` : ""}</h2>
    <${Intervals} rows=${rows("cost", cost)} actual=${actual?.cost} text=${cost} caption=${`Planned cost by policy${actual?.cost_words ? `; the actual cost is ${actual.cost_words}` : ""}`} />
    <h2>End</h2>
    <${Intervals} rows=${rows("end", end)} actual=${actual?.end} text=${end} steps=${clockTicks} caption=${`Planned end by policy${actual?.end_words ? `; the actual end is ${actual.end_words}` : ""}`} />
    <div class="scroll" tabindex="0" role="region" aria-label="Plan by policy"><table class="plain"><thead><tr><th>Policy</th><th class="number">Cost p10</th><th class="number">p50</th><th class="number">p90</th><th class="number">p99</th><th class="number">End p10</th><th class="number">p50</th><th class="number">p90</th><th class="number">p99</th></tr></thead>
      <tbody>${answer.policies.map((policy) => html`<tr key=${policy.name}><td>${policy.name}${policy.is_own ? " (this run's)" : ""}: ${policy.words}</td>
        ${["p10", "p50", "p90", "p99"].map((key) => html`<td key=${key} class="number">${cost(policy.cost[key])}</td>`)}
        ${["p10", "p50", "p90", "p99"].map((key) => html`<td key=${key} class="number">${end(policy.end[key])}</td>`)}</tr>`)}</tbody></table></div>
  </section>`;
}

const words = (values, text) => ["p10", "p50", "p90", "p99"].map((key) => `${key} ${text(values[key])}`).join(", ");
