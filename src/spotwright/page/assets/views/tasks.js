// All tasks of a run as a table.
import { html } from "htm/preact";
import { useMemo } from "preact/hooks";
import { runPath } from "../api.js";
import { count, duration, money, offset } from "../format.js";
import { Empty, Status } from "../parts/common.js";
import { Grid } from "../parts/grid.js";
import { useDocument } from "../parts/load.js";
import { go, href, route, set } from "../routes.js";

const EVERY = 10_000; // milliseconds between two accounts while the run goes on

export function Tasks({ run }) {
  const tasks = run.tasks.value;
  const version = tasks.version.value;
  const params = route.value.params;
  const text = (params.get("q") ?? "").toLowerCase();
  const status = params.get("status") ?? "";
  const sort = { key: (params.get("sort") ?? "").replace(/^-/, ""), down: (params.get("sort") ?? "").startsWith("-") };
  const { answer: account } = useDocument(runPath(run.name, "account"), {}, { live: run.driven.value, every: EVERY });
  const spent = useMemo(() => {
    const found = account?.by_task;
    return new Map(found ? found.path.map((path, at) => [path, { cost: found.cost[at], low: found.wasted_low[at], high: found.wasted_high[at] }]) : []);
  }, [account]);
  const took = (row) => (tasks.ended[row] === null || tasks.began[row] === null ? null : tasks.ended[row] - tasks.began[row]);
  const values = {
    path: (row) => tasks.path[row],
    status: (row) => tasks.word("status", row),
    attempts: (row) => tasks.attempts[row],
    interruptions: (row) => tasks.interruptions[row],
    errors: (row) => tasks.errors[row],
    began: (row) => tasks.began[row],
    took,
    cost: (row) => spent.get(tasks.path[row])?.cost ?? null,
    wasted: (row) => spent.get(tasks.path[row])?.high ?? null,
  };
  const order = useMemo(() => {
    const rows = [];
    for (let row = 0; row < tasks.rows; row++) {
      if (text && !tasks.path[row].toLowerCase().includes(text)) continue;
      if (status && tasks.word("status", row) !== status) continue;
      rows.push(row);
    }
    const value = values[sort.key];
    return value ? rows.sort((a, b) => compared(value(a), value(b), sort.down)) : rows;
  }, [tasks, version, text, status, sort.key, sort.down, spent]);
  const budget = (used, most, row) => html`${count(used[row])}<span class="of">/${most[row]}</span>`;
  const amountOf = (value) => (value === null || value === undefined ? "" : money(value));
  const wasted = ({ low, high }) => (amountOf(low) === amountOf(high) ? amountOf(low) : `${amountOf(low)}–${amountOf(high)}`);
  const why = (row) => tasks.why[row] || tasks.waits[row];
  const columns = [
    { key: "path", title: "Task", className: "wide name", sort: true, cell: (at) => tasks.path[order[at]] },
    { key: "status", title: "Status", className: "status", sort: true, cell: (at) => html`<${Status} status=${tasks.word("status", order[at])} />` },
    { key: "why", title: "Why, or what it waits for", className: "wide text", cell: (at) => html`<span title=${why(order[at])}>${why(order[at])}</span>` },
    { key: "attempts", title: "Attempts", className: "number", sort: true, cell: (at) => count(tasks.attempts[order[at]]) },
    { key: "interruptions", title: "Interruptions", className: "number long", sort: true, cell: (at) => budget(tasks.interruptions, tasks.interruptions_max, order[at]) },
    { key: "errors", title: "Errors", className: "number", sort: true, cell: (at) => budget(tasks.errors, tasks.errors_max, order[at]) },
    { key: "pool", title: "Pool", className: "name", cell: (at) => tasks.word("pool", order[at]) },
    { key: "node", title: "Node", className: "name", cell: (at) => tasks.word("node", order[at]) },
    { key: "began", title: "Began", className: "number", sort: true, cell: (at) => offset(tasks.began[order[at]]) },
    { key: "took", title: "Took", className: "number", sort: true, cell: (at) => duration(took(order[at])) },
    { key: "cost", title: "Cost", className: "number", sort: true, cell: (at) => amountOf(spent.get(tasks.path[order[at]])?.cost) },
    { key: "wasted", title: "Wasted", className: "number range", sort: true, cell: (at) => (spent.has(tasks.path[order[at]]) ? wasted(spent.get(tasks.path[order[at]])) : "") },
  ];
  // The first click on a number shows the largest first, the third one the order of the pipeline.
  const onSort = (key) => {
    const first = ["path", "status"].includes(key) ? key : `-${key}`;
    const second = first === key ? `-${key}` : key;
    const now = params.get("sort") ?? "";
    set({ sort: now === first ? second : now === second ? "" : first });
  };
  const address = (at) => href("attempt", run.name, { task: tasks.path[order[at]], n: tasks.attempts[order[at]] || "" });
  return html`<section class="view view-tasks" aria-label="Tasks">
    <form class="filters" role="search" onSubmit=${(event) => event.preventDefault()}>
      <input type="search" aria-label="Find a task" placeholder="Find a task" value=${params.get("q") ?? ""} onInput=${(event) => set({ q: event.currentTarget.value })} />
      <label>Status <select value=${status} onChange=${(event) => set({ status: event.currentTarget.value })}>
        ${["", ...tasks.words.status].map((word) => html`<option key=${word} value=${word}>${word || "any"}</option>`)}
      </select></label>
      <span class="note">${count(order.length)} of ${count(tasks.rows)}${account ? `; amounts in ${account.unit}` : ""}</span>
    </form>
    ${order.length
      ? html`<${Grid} name="tasks" columns=${columns} rows=${order.length} version=${version} address=${address} sort=${sort} onSort=${onSort}
          open=${(at) => go(address(at))} label=${(at) => `${tasks.path[order[at]]}, ${tasks.word("status", order[at])}${why(order[at]) ? `: ${why(order[at])}` : ""}`} />`
      : html`<${Empty}><p>${tasks.rows ? html`No task matches. <a href=${href("tasks", run.name)}>Show all</a>` : "This run has no tasks yet."}</p><//>`}
  </section>`;
}

// Rows without a value come last in both directions.
function compared(a, b, isDown) {
  if (a === null || b === null) return (a === null) - (b === null);
  const order = typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b;
  return isDown ? -order : order;
}
