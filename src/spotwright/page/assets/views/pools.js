// The pools over the runs of a day: nodes, prices, interruptions an hour, what they wait for.
import { html } from "htm/preact";
import { count, dateTime, duration, money, moment } from "../format.js";
import { Empty, Loading, Problem } from "../parts/common.js";
import { useDocument } from "../parts/load.js";
import { href } from "../routes.js";

export function Pools() {
  const { answer, error, retry } = useDocument("pools", {}, { live: true, every: 5000 });
  const pools = answer?.pools ?? [];
  return html`<main class="view view-pools"><h1>Pools</h1>
    ${error && html`<${Problem} error=${error} retry=${retry} />`}
    ${!answer && !error && html`<${Loading} what="pools" />`}
    ${answer && !pools.length && html`<${Empty}><p>No run used a pool within a day.</p><p>The pools of the configuration: <code>spotwright pools</code></p><//>`}
    ${pools.length > 0 && html`<p class="note">Runs since <span title=${moment(answer.since)}>${dateTime(answer.since)}</span>. Each run on this machine has its own simulated pools.</p>
    <div class="scroll" tabindex="0" role="region" aria-label="Pools"><table class="plain"><thead><tr><th>Pool</th><th>Capacity</th><th class="number">Node hour</th><th class="number">Runs</th><th>Nodes now</th><th class="number">Attempts</th><th class="number">Running</th><th class="number">Interruptions</th><th class="number">an hour</th><th class="number">Mean boot</th><th>Left out</th><th>Waiting for it</th></tr></thead>
    <tbody>${pools.map((pool) => html`<tr key=${pool.name}><td>${pool.name}</td><td>${pool.capacity}</td>
      <td class="number">${pool.price === null ? "no price" : money(pool.price, pool.currency)}</td><td class="number">${count(pool.runs)}</td>
      <td>${nodes(pool.nodes)}</td><td class="number">${count(pool.attempts)}</td><td class="number">${count(pool.running)}</td><td class="number">${count(pool.interruptions)}</td>
      <td class="number">${pool.interruptions_an_hour === null ? "" : pool.interruptions_an_hour.toFixed(2)}</td><td class="number">${duration(pool.boot)}</td>
      <td>${pool.left_out && html`<span title=${moment(pool.left_out.until)}>until ${dateTime(pool.left_out.until)}</span>: ${pool.left_out.why} <a href=${href("timeline", pool.left_out.run)}>${pool.left_out.run}</a>`}</td>
      <td>${pool.waiting.map((each) => `${count(each.count)} ${each.reason}`).join(", ")}</td></tr>`)}</tbody></table></div>`}
  </main>`;
}

const nodes = (states) =>
  Object.entries(states)
    .filter(([state, number]) => number && state !== "gone")
    .map(([state, number]) => `${count(number)} ${state}`)
    .join(", ") || "none";
