// What the run's node time went into, as a bar, over time, by pool and by task; beside it what on-demand would have cost.
import { html } from "htm/preact";
import { runPath } from "../api.js";
import { amount, count, duration, money, offset, plural } from "../format.js";
import { Lines, StackedBar } from "../parts/chart.js";
import { Empty, Loading, Problem } from "../parts/common.js";
import { useDocument } from "../parts/load.js";
import { href } from "../routes.js";

const TITLES = {
  useful: "useful",
  interruptions: "lost to interruptions",
  moves: "lost to moves",
  errors: "spent on errors",
  stopped: "stopped",
  "under way": "under way",
  boot: "boot",
  idle: "idle",
  unfilled: "unfilled",
};
const MOST_TASKS = 20;

// The value of an amount in the unit of the view: money, or node-hours where a price is missing.
const value = (one, priced) => (priced ? one.money : one.seconds / 3600);

function range(low, high, text) {
  const [first, last] = [text(low), text(high)];
  return first === last ? first : `${first} to ${last}`;
}

export function AccountView({ run }) {
  const { answer, error, retry } = useDocument(runPath(run.name, "account"), {}, { live: run.driven.value });
  if (!answer) return error ? html`<${Problem} error=${error} retry=${retry} />` : html`<${Loading} what="the account" />`;
  if (!answer.pools.length) return html`<${Empty}><p>No node was used yet, so nothing was spent.</p><//>`;
  const priced = answer.whole.money !== null;
  const whole = value(answer.whole, priced);
  const text = (number) => (priced ? money(number, answer.currency, whole) : `${money(number, "", whole)} node-hours`);
  const parts = [
    { key: "useful", low: value(answer.useful.low, priced), high: value(answer.useful.high, priced) },
    ...Object.entries(answer.spent).map(([key, one]) => ({ key, low: value(one.low, priced), high: value(one.high, priced) })),
    ...["boot", "idle", "unfilled"].map((key) => ({ key, low: value(answer[key], priced), high: value(answer[key], priced) })),
  ].map((part) => ({ ...part, title: TITLES[part.key] ?? part.key, text: range(part.low, part.high, text) }));
  // What is uncertain is in two parts at once: in the bar it is drawn once, hatched, with the useful work.
  const bar = parts.map((part, index) => (index ? { ...part, high: part.low } : part));
  const share = (number) => (whole ? `${((number / whole) * 100).toFixed(1)} %` : "");
  return html`<section class="view view-account" aria-label="Cost">
    <h2>Where ${text(whole)} went</h2>
    <${StackedBar} parts=${bar} caption=${parts.map((part) => `${part.title} ${part.text}`).join(", ")} />
    <div class="columns"><div class="scroll"><table class="plain"><caption class="unseen">Cost by what it was spent on</caption>
      <thead><tr><th>Spent on</th><th class="number">Cost</th><th class="number">Share</th></tr></thead>
      <tbody>${parts.map((part) => html`<tr key=${part.key}><td>${part.title}</td><td class="number">${part.text}</td><td class="number">${range(part.low, part.high, share)}</td></tr>`)}
      <tr class="sum"><td>all node time</td><td class="number">${text(whole)}</td><td class="number">${duration(answer.whole.seconds)} of nodes</td></tr></tbody></table></div>
    <${Compared} answer=${answer} priced=${priced} /></div>
    ${answer.moves.attempts > 0 && html`<p>The deadline moved ${plural(answer.moves.attempts, "attempt")}; the launches after that cost ${amount(answer.moves.launches, answer.currency)} of boot.</p>`}
    ${answer.series && answer.series.t.length > 1 && html`<h2>Over time</h2>
      <${Lines} times=${answer.series.t} xText=${(at) => offset(at)} yText=${(number) => money(number)} caption="Cost and waste over time"
        lines=${[{ key: "cost", title: "spent", values: answer.series.cost }, { key: "wasted", title: "wasted", values: answer.series.wasted }]} />`}
    <h2>By pool</h2>
    <div class="scroll"><table class="plain"><thead><tr><th>Pool</th><th>Capacity</th><th class="number">Price of a node hour</th><th class="number">Nodes</th><th class="number">Cost</th><th class="number">On attempts</th><th class="number">Boot</th><th class="number">Idle</th><th class="number">Unfilled</th></tr></thead>
      <tbody>${answer.pools.map((pool) => html`<tr key=${pool.name + pool.price}><td>${pool.name}</td><td>${pool.capacity}</td><td class="number">${pool.price === null ? "no price" : money(pool.price, answer.currency)} (${pool.price_source})</td><td class="number">${count(pool.nodes)}</td>
        ${["whole", "attempts", "boot", "idle", "unfilled"].map((key) => html`<td key=${key} class="number">${amount(pool[key], "", whole)}</td>`)}</tr>`)}</tbody></table></div>
    <${ByTask} run=${run} answer=${answer} />
    ${answer.builds.length > 0 && html`<h2>Python environments</h2><ul>${answer.builds.map((build) => html`<li>${build.packages.join(", ")}: ${duration(build.seconds)}, on no node</li>`)}</ul>`}
    <p class="note">Prices are ${answer.prices}. An attempt pays its share of its node; what is uncertain is told as a range.</p>
  </section>`;
}

function Compared({ answer, priced }) {
  if (!answer.saved || !priced) return html`<div class="compared"><h3>Beside on-demand</h3><p class="note">Not compared: ${answer.why_no_comparison || "a price is missing"}.</p></div>`;
  const beside = Math.max(Math.abs(answer.saved.low), Math.abs(answer.saved.high), answer.on_demand.high.money);
  const text = (number) => money(number, answer.currency, beside);
  const shares = [answer.saved.low / answer.on_demand.low.money, answer.saved.high / answer.on_demand.high.money].filter(Number.isFinite);
  return html`<div class="compared"><h3>Beside on-demand</h3>
    <p>The same useful work on ${Object.keys(answer.on_demand_pools).join(", ")}: ${range(answer.on_demand.low.money, answer.on_demand.high.money, text)}.</p>
    <p class="saved">${answer.saved.low < 0 ? "Spot cost more" : "Saved"}: <strong>${range(answer.saved.low, answer.saved.high, text)}</strong>${shares.length === 2 ? html` (${range(Math.min(...shares), Math.max(...shares), (part) => `${(part * 100).toFixed(0)} %`)})` : ""}</p></div>`;
}

function ByTask({ run, answer }) {
  const rows = (answer.by_task ?? []).filter((each) => each.cost.seconds > 0);
  const wasted = (each) => each.wasted.high.money ?? each.wasted.high.seconds;
  const most = [...rows].sort((one, other) => wasted(other) - wasted(one)).slice(0, MOST_TASKS);
  if (!most.length) return null;
  return html`<h2>By task${rows.length > MOST_TASKS ? html` <span class="note">the ${MOST_TASKS} of ${count(rows.length)} with most waste</span>` : ""}</h2>
    <div class="scroll"><table class="plain"><thead><tr><th>Task</th><th class="number">Attempts</th><th class="number">Cost</th><th class="number">Wasted</th></tr></thead>
    <tbody>${most.map((each) => html`<tr key=${each.path}><td><a href=${href("attempt", run.name, { task: each.path, n: each.attempts })}>${each.path}</a></td><td class="number">${count(each.attempts)}</td>
      <td class="number">${amount(each.cost, answer.currency)}</td><td class="number">${range(each.wasted.low, each.wasted.high, (one) => amount(one, answer.currency))}</td></tr>`)}</tbody></table></div>`;
}
