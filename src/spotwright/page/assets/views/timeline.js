// The attempts of a run over time, as lanes.
import { html } from "htm/preact";
import { duration, offset } from "../format.js";
import { causeText, classOf } from "../words.js";
import { Grid } from "../parts/grid.js";
import { go, href } from "../routes.js";

export function Timeline({ run }) {
  const attempts = run.attempts.value;
  const tasks = run.tasks.value;
  const version = attempts.version.value;
  const cause = (row) => attempts.word("cause", row) || (attempts.ended[row] === null ? (attempts.bound[row] === null ? "pending" : "running") : "");
  const columns = [
    { key: "task", title: "Task", className: "wide name", cell: (row) => `${tasks.path[attempts.task[row]]} ${attempts.number[row]}` },
    { key: "cause", title: "How it ended", className: "name", cell: (row) => html`<span class=${classOf("cause", cause(row))}>${causeText(cause(row))}</span>` },
    { key: "pool", title: "Pool", className: "name", cell: (row) => attempts.word("pool", row) },
    { key: "node", title: "Node", className: "name", cell: (row) => attempts.word("node", row) },
    { key: "began", title: "Began", className: "number", cell: (row) => offset(attempts.bound[row]) },
    { key: "took", title: "Took", className: "number", cell: (row) => duration(attempts.ended[row] === null ? null : attempts.ended[row] - attempts.bound[row]) },
  ];
  const address = (row) => href("attempt", run.name, { task: tasks.path[attempts.task[row]], n: attempts.number[row] });
  return html`<section class="view view-timeline" aria-label="Timeline">
    <${Grid} name="attempts" columns=${columns} rows=${attempts.rows} version=${version} address=${address} open=${(row) => go(address(row))} />
  </section>`;
}
