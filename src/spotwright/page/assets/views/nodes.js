// The nodes of a run: when they came and went, why, and the attempts that ended with them.
import { html } from "htm/preact";
import { useMemo } from "preact/hooks";
import { count, duration, offset } from "../format.js";
import { Empty, Status } from "../parts/common.js";
import { Grid } from "../parts/grid.js";
import { nodeSentence } from "../parts/marks.js";
import { go, href, route, set } from "../routes.js";

const AT_ONCE = 2; // seconds around the end of a node in which an attempt ended with it

// For each node the attempts that it took with it: they were on it and were interrupted or lost when it went.
function endedWith(attempts, nodes) {
  const byName = new Map();
  for (let row = 0; row < nodes.rows; row++) byName.set(nodes.name[row], [...(byName.get(nodes.name[row]) ?? []), row]);
  const found = new Map();
  for (let row = 0; row < attempts.rows; row++) {
    const ended = attempts.ended[row];
    if (ended === null || attempts.bound[row] === null || !["interrupted", "lost", "disrupted"].includes(attempts.word("cause", row))) continue;
    const node = (byName.get(attempts.word("node", row)) ?? []).find(
      (each) => (nodes.booted[each] ?? nodes.ready[each] ?? 0) <= attempts.bound[row] && (nodes.gone[each] === null || nodes.gone[each] >= ended - AT_ONCE),
    );
    if (node !== undefined) found.set(node, [...(found.get(node) ?? []), row]);
  }
  return found;
}

export function Nodes({ run }) {
  const { attempts, nodes, tasks } = { attempts: run.attempts.value, nodes: run.nodes.value, tasks: run.tasks.value };
  const version = `${attempts.version.value}.${nodes.version.value}`;
  const params = route.value.params;
  const q = (params.get("q") ?? "").toLowerCase();
  const state = params.get("state") ?? "";
  const taken = useMemo(() => endedWith(attempts, nodes), [attempts, nodes, version]);
  const order = useMemo(() => {
    const rows = [];
    for (let row = 0; row < nodes.rows; row++) {
      if (q && !`${nodes.name[row]} ${nodes.word("pool", row)}`.toLowerCase().includes(q)) continue;
      if (state && nodes.word("state", row) !== state) continue;
      rows.push(row);
    }
    return rows;
  }, [nodes, version, q, state]);
  if (!nodes.rows) return html`<section class="view" aria-label="Nodes"><${Empty}><p>This run has had no node yet.</p><//></section>`;
  const since = (from, until) => (from === null || until === null ? "" : duration(until - from));
  const links = (row) => {
    const found = taken.get(row) ?? [];
    return html`${found.slice(0, 3).map((each, index) => html`${index ? ", " : ""}<a key=${each} tabindex="-1" href=${href("attempt", run.name, { task: tasks.path[attempts.task[each]], n: attempts.number[each] })}>${tasks.path[attempts.task[each]]} ${attempts.number[each]}</a>`)}${found.length > 3 ? ` and ${found.length - 3} more` : ""}`;
  };
  const columns = [
    { key: "name", title: "Node", className: "wide name", cell: (at) => nodes.name[order[at]] },
    { key: "pool", title: "Pool", className: "name", cell: (at) => `${nodes.word("pool", order[at])}${nodes.word("capacity", order[at]) ? ` (${nodes.word("capacity", order[at])})` : ""}` },
    { key: "state", title: "State", className: "status", cell: (at) => html`<${Status} status=${nodes.word("state", order[at])} />` },
    { key: "booted", title: "Requested", className: "number", cell: (at) => offset(nodes.booted[order[at]]) },
    { key: "boot", title: "Boot took", className: "number", cell: (at) => since(nodes.booted[order[at]], nodes.ready[order[at]]) },
    { key: "ready", title: "Ready", className: "number", cell: (at) => offset(nodes.ready[order[at]]) },
    { key: "noticed", title: "Notice", className: "number", cell: (at) => offset(nodes.noticed[order[at]]) },
    { key: "gone", title: "Gone", className: "number", cell: (at) => offset(nodes.gone[order[at]]) },
    { key: "why", title: "Why", className: "wide text", cell: (at) => html`<span title=${nodes.why[order[at]]}>${nodes.why[order[at]]}</span>` },
    { key: "taken", title: "Ended with it", className: "wide text", cell: (at) => links(order[at]) },
  ];
  const address = (at) => href("timeline", run.name, { by: "node", q: nodes.name[order[at]] });
  return html`<section class="view view-nodes" aria-label="Nodes">
    <form class="filters" role="search" onSubmit=${(event) => event.preventDefault()}>
      <input type="search" aria-label="Find a node or pool" placeholder="Find a node or pool" value=${params.get("q") ?? ""} onInput=${(event) => set({ q: event.currentTarget.value })} />
      <label>State <select value=${state} onChange=${(event) => set({ state: event.currentTarget.value })}>
        ${["", ...nodes.words.state].map((word) => html`<option key=${word} value=${word}>${word || "any"}</option>`)}
      </select></label>
      <span class="note">${count(order.length)} of ${count(nodes.rows)}</span>
    </form>
    ${order.length
      ? html`<${Grid} name="nodes" columns=${columns} rows=${order.length} version=${version} address=${address} open=${(at) => go(address(at))}
          label=${(at) => `${nodeSentence(nodes, order[at])}${taken.has(order[at]) ? `; ${count(taken.get(order[at]).length)} attempts ended with it` : ""}`} />`
      : html`<${Empty}><p>No node matches. <a href=${href("nodes", run.name)}>Show all</a></p><//>`}
  </section>`;
}
