// What the run's node time went into, as a bar, over time, by pool and by task; beside it what on-demand would have cost.
import { html } from "htm/preact";
import { runPath } from "../api.js";
import { amount, count, duration, money, plural, tick } from "../format.js";
import { Lines, StackedBar } from "../parts/chart.js";
import { Empty, Loading, Problem } from "../parts/common.js";
import { useDocument } from "../parts/load.js";
import { href } from "../routes.js";

const MOST_TASKS = 20;

function range(low, high, text) {
  const [first, last] = [text(low), text(high)];
  return first === last ? first : `${first} to ${last}`;
}

export function AccountView({ run }) {
  const { answer, error, retry } = useDocument(runPath(run.name, "account"), {}, { live: run.driven.value });
  if (!answer) return error ? html`<${Problem} error=${error} retry=${retry} />` : html`<${Loading} what="the account" />`;
  if (!answer.pools.length) return html`<${Empty}><p>No node was used yet, so nothing was spent.</p><//>`;
  const priced = answer.whole.money !== null;
  const whole = priced ? answer.whole.money : answer.whole.seconds / 3600;
  const text = (number) => money(number, "", whole);
  // What lies between the low and the high end of the useful work is in another line too: the bar shows it once, hatched.
  const bar = answer.bar.map((line, index) => ({ key: line.key, title: line.words, low: line.low, high: index ? line.low : line.high, text: line.cost }));
  return html`<section class="view view-account" aria-label="Cost">
    <h2>Where ${priced ? money(whole, answer.currency) : `${text(whole)} node-hours`} went${priced && answer.prices !== "configured" ? html` <span class="note">(prices are ${answer.prices === "mixed" ? "partly simulated" : answer.prices})</span>` : ""}</h2>
    <${StackedBar} parts=${bar} caption=${answer.bar.map((line) => `${line.words} ${line.cost}`).join(", ")} />
    <div class="columns"><div class="scroll" tabindex="0" role="region" aria-label="Cost by what it was spent on"><table class="plain"><caption class="unseen">Cost by what it was spent on</caption>
      <thead><tr><th>Spent on</th><th class="number">Node time</th><th class="number">${answer.unit}</th><th class="number">Share</th></tr></thead>
      <tbody>${answer.bar.map((line) => html`<tr key=${line.key}><td>${line.words}</td><td class="number">${line.time}</td><td class="number">${line.cost}</td><td class="number">${line.part}</td></tr>`)}
      <tr class="sum"><td>all node time</td><td class="number">${duration(answer.whole.seconds)}</td><td class="number">${text(whole)}</td><td></td></tr></tbody></table></div>
    <${Compared} answer=${answer} /></div>
    ${answer.moves.attempts > 0 && html`<p>The deadline moved ${plural(answer.moves.attempts, "attempt")}; the launches after that cost ${amount(answer.moves.launches, answer.currency)} of boot.</p>`}
    ${answer.series && answer.series.t.length > 1 && html`<h2>Over time</h2>
      <${Lines} times=${answer.series.t} xText=${tick} yText=${(number) => money(number)} caption="Cost and waste over time"
        lines=${[{ key: "cost", title: "spent", values: answer.series.cost }, { key: "wasted", title: "wasted at most", values: answer.series.wasted_high }]} />`}
    <h2>By pool</h2>
    <div class="scroll" tabindex="0" role="region" aria-label="Cost by pool"><table class="plain"><thead><tr><th>Pool</th><th>Capacity</th><th class="number">Price of a node hour</th><th class="number">Nodes</th><th class="number">Cost</th><th class="number">On attempts</th><th class="number">Boot</th><th class="number">Idle</th><th class="number">Unfilled</th></tr></thead>
      <tbody>${answer.pools.map((pool) => html`<tr key=${pool.name + pool.price}><td>${pool.name}</td><td>${pool.capacity}</td><td class="number">${pool.price === null ? "no price" : money(pool.price, answer.currency)} (${pool.price_source})</td><td class="number">${count(pool.nodes)}</td>
        ${["whole", "attempts", "boot", "idle", "unfilled"].map((key) => html`<td key=${key} class="number">${amount(pool[key], "", whole)}</td>`)}</tr>`)}</tbody></table></div>
    <${ByTask} run=${run} answer=${answer} />
    ${answer.builds.length > 0 && html`<h2>Python environments</h2><ul>${answer.builds.map((build) => html`<li>${build.packages.join(", ")}: ${duration(build.seconds)}, on no node</li>`)}</ul>`}
    <p class="note">Figures: ${answer.figures}. An attempt pays its share of its node; what is uncertain is told as a range.</p>
  </section>`;
}

// In the words of the report.
const Compared = ({ answer }) => html`<div class="compared"><h3>Beside on-demand</h3><p><strong>Saved</strong> ${answer.saved_text}</p></div>`;

function ByTask({ run, answer }) {
  const columns = answer.by_task;
  const rows = columns.path.map((_, row) => row).sort((one, other) => columns.wasted_high[other] - columns.wasted_high[one]);
  const most = rows.slice(0, MOST_TASKS);
  const text = (number) => money(number);
  if (!most.length) return null;
  return html`<h2>By task${rows.length > MOST_TASKS ? html` <span class="note">the ${MOST_TASKS} of ${count(rows.length)} with most waste</span>` : ""}</h2>
    <div class="scroll" tabindex="0" role="region" aria-label="Cost by task"><table class="plain"><thead><tr><th>Task</th><th class="number">Attempts</th><th class="number">Interruptions</th><th class="number">${answer.unit}</th><th class="number">Wasted</th></tr></thead>
    <tbody>${most.map((row) => html`<tr key=${columns.path[row]}><td><a href=${href("attempt", run.name, { task: columns.path[row], n: columns.attempts[row] })}>${columns.path[row]}</a></td><td class="number">${count(columns.attempts[row])}</td>
      <td class="number">${count(columns.interruptions[row])}</td><td class="number">${text(columns.cost[row])}</td><td class="number">${range(columns.wasted_low[row], columns.wasted_high[row], text)}</td></tr>`)}</tbody></table></div>`;
}
