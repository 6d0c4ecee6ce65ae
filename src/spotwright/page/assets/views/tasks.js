// All tasks of a run as a table.
import { html } from "htm/preact";
import { count, duration, offset } from "../format.js";
import { Status } from "../parts/common.js";
import { Grid } from "../parts/grid.js";
import { go, href, route, set } from "../routes.js";

export function Tasks({ run }) {
  const tasks = run.tasks.value;
  const version = tasks.version.value;
  const params = route.value.params;
  const text = (params.get("q") ?? "").toLowerCase();
  const status = params.get("status") ?? "";
  const order = [];
  for (let row = 0; row < tasks.rows; row++) {
    if (text && !tasks.path[row].toLowerCase().includes(text)) continue;
    if (status && tasks.word("status", row) !== status) continue;
    order.push(row);
  }
  const budget = (spent, most, row) => html`${count(spent[row])}<span class="of">/${most[row]}</span>`;
  const columns = [
    { key: "path", title: "Task", className: "wide name", cell: (at) => tasks.path[order[at]] },
    { key: "status", title: "Status", cell: (at) => html`<${Status} status=${tasks.word("status", order[at])} />` },
    { key: "why", title: "Why, or what it waits for", className: "wide text", cell: (at) => tasks.why[order[at]] || tasks.waits[order[at]] },
    { key: "attempts", title: "Attempts", className: "number", cell: (at) => count(tasks.attempts[order[at]]) },
    { key: "interruptions", title: "Interruptions", className: "number", cell: (at) => budget(tasks.interruptions, tasks.interruptions_max, order[at]) },
    { key: "errors", title: "Errors", className: "number", cell: (at) => budget(tasks.errors, tasks.errors_max, order[at]) },
    { key: "pool", title: "Pool", className: "name", cell: (at) => tasks.word("pool", order[at]) },
    { key: "node", title: "Node", className: "name", cell: (at) => tasks.word("node", order[at]) },
    { key: "began", title: "Began", className: "number", cell: (at) => offset(tasks.began[order[at]]) },
    { key: "took", title: "Took", className: "number", cell: (at) => duration(tasks.ended[order[at]] === null ? null : tasks.ended[order[at]] - tasks.began[order[at]]) },
  ];
  const address = (at) => href("attempt", run.name, { task: tasks.path[order[at]], n: tasks.attempts[order[at]] || "" });
  return html`<section class="view view-tasks" aria-label="Tasks">
    <form class="filters" role="search" onSubmit=${(event) => event.preventDefault()}>
      <input type="search" aria-label="Find a task" placeholder="Find a task" value=${params.get("q") ?? ""} onInput=${(event) => set({ q: event.currentTarget.value })} />
      <label>Status <select value=${status} onChange=${(event) => set({ status: event.currentTarget.value })}>
        ${["", ...tasks.words.status].map((word) => html`<option value=${word}>${word || "any"}</option>`)}
      </select></label>
      <span class="note">${count(order.length)} of ${count(tasks.rows)}</span>
    </form>
    <${Grid} name="tasks" columns=${columns} rows=${order.length} version=${version} address=${address}
      open=${(at) => go(address(at))} label=${(at) => `${tasks.path[order[at]]}, ${tasks.word("status", order[at])}`} />
  </section>`;
}
