// What the runs of a time cost together: by pool, by task, by run.
import { html } from "htm/preact";
import { amount, count, dateTime, money, plural } from "../format.js";
import { Empty, Loading, Problem } from "../parts/common.js";
import { useDocument } from "../parts/load.js";
import { href, route, set } from "../routes.js";

const SPANS = [["24h", "a day"], ["7d", "a week"], ["30d", "30 days"], ["365d", "a year"]];
const MOST = 50;

function range(one, text) {
  if (!one) return "";
  const [first, last] = [text(one.low), text(one.high)];
  return first === last ? first : `${first} to ${last}`;
}

export function TotalsView() {
  const since = route.value.params.get("since") || "7d";
  const { answer, error, retry } = useDocument("totals", { since });
  return html`<main class="view view-totals"><div class="title"><h1>Totals</h1>
    <div class="filters"><label>Runs that began within <select value=${since} onChange=${(event) => set({ since: event.currentTarget.value })}>
      ${SPANS.map(([key, title]) => html`<option value=${key}>${title}</option>`)}</select></label></div></div>
    ${error && html`<${Problem} error=${error} retry=${retry} />`}
    ${!answer && !error && html`<${Loading} what="totals" />`}
    ${answer && !answer.totals.length && html`<${Empty}><p>No run began within this time.</p><//>`}
    ${answer?.totals.map((total, index) => html`<${Total} key=${index} total=${total} />`)}
    ${answer?.problems?.map((problem) => html`<p class="problem" key=${problem.run}>${problem.message}</p>`)}
  </main>`;
}

function Total({ total }) {
  const currency = total.currency ?? "";
  const text = (one) => amount(one, currency);
  const rows = [["all node time", text(total.whole)], ["useful", range(total.useful, text)]];
  for (const [key, one] of Object.entries(total.spent)) if (one.high.seconds > 0) rows.push([key, range(one, text)]);
  for (const key of ["boot", "idle", "unfilled"]) rows.push([key, text(total[key])]);
  if (total.on_demand) rows.push([`on on-demand (${plural(total.compared, "run")})`, range(total.on_demand, text)]);
  if (total.saved) rows.push(["saved", range(total.saved, (number) => money(number, currency))]);
  return html`<section aria-label=${`Totals at ${total.prices ?? "no"} prices`}><h2>${total.prices ? `At ${total.prices} prices` : "Without prices, in node-hours"}</h2>
    <div class="scroll" tabindex="0" role="region" aria-label="Sums"><table class="plain"><tbody>${rows.map(([term, one]) => html`<tr key=${term}><th scope="row">${term}</th><td class="number">${one}</td></tr>`)}</tbody></table></div>
    <h3>By pool</h3><div class="scroll" tabindex="0" role="region" aria-label="Pools"><table class="plain"><thead><tr><th>Pool</th><th>Capacity</th><th class="number">Nodes</th><th class="number">Cost</th><th class="number">On attempts</th></tr></thead>
      <tbody>${total.pools.map((pool) => html`<tr key=${pool.name}><td>${pool.name}</td><td>${pool.capacity}</td><td class="number">${count(pool.nodes)}</td><td class="number">${text(pool.whole)}</td><td class="number">${text(pool.attempts)}</td></tr>`)}</tbody></table></div>
    <h3>By task</h3><div class="scroll" tabindex="0" role="region" aria-label="Tasks"><table class="plain"><thead><tr><th>Pipeline</th><th>Task</th><th class="number">Attempts</th><th class="number">Interruptions</th><th class="number">Cost</th><th class="number">Wasted</th></tr></thead>
      <tbody>${[...total.tasks].sort((one, other) => other.cost.seconds - one.cost.seconds).slice(0, MOST).map((task) => html`<tr key=${task.pipeline + task.task}><td>${task.pipeline}</td><td>${task.task}</td><td class="number">${count(task.attempts)}</td><td class="number">${count(task.interruptions)}</td><td class="number">${text(task.cost)}</td><td class="number">${range(task.wasted, text)}</td></tr>`)}</tbody></table></div>
    ${total.tasks.length > MOST && html`<p class="note">${count(total.tasks.length - MOST)} tasks that cost less are left out.</p>`}
    <h3>By run</h3><div class="scroll" tabindex="0" role="region" aria-label="Runs"><table class="plain"><thead><tr><th>Run</th><th>Pipeline</th><th>Began</th><th class="number">Cost</th><th class="number">Wasted</th><th class="number">Saved</th></tr></thead>
      <tbody>${total.runs.slice(0, MOST).map((run) => html`<tr key=${run.run}><td><a href=${href("account", run.run)}>${run.run}</a></td><td>${run.pipeline}</td><td>${dateTime(run.began)}</td><td class="number">${text(run.whole)}</td><td class="number">${range(run.wasted, text)}</td><td class="number">${run.saved ? range(run.saved, (number) => money(number, currency)) : run.why_no_comparison}</td></tr>`)}</tbody></table></div>
    ${total.runs.length > MOST && html`<p class="note">${count(total.runs.length - MOST)} more runs are in the sums.</p>`}
  </section>`;
}
