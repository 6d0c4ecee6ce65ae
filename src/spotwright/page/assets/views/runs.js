// The runs of a state folder or a cluster, newest first.
import { html } from "htm/preact";
import { useEffect, useState } from "preact/hooks";
import { get } from "../api.js";
import { amount, count, dateTime, duration, moment, percent } from "../format.js";
import { Empty, Loading, Problem, Status } from "../parts/common.js";
import { Grid } from "../parts/grid.js";
import { go, href, route, set } from "../routes.js";

const EVERY = 2000; // milliseconds between looks at the list while it is visible
const AT_ONCE = 500;

const COLUMNS = (lines) => [
  { key: "run", title: "Run", className: "wide name", cell: (row) => lines[row].run },
  { key: "pipeline", title: "Pipeline", className: "name", cell: (row) => lines[row].pipeline },
  { key: "status", title: "Status", cell: (row) => html`<${Status} status=${lines[row].status} />` },
  { key: "progress", title: "Done", className: "number", cell: (row) => percent(lines[row].progress) },
  { key: "began", title: "Began", className: "moment", cell: (row) => html`<span title=${moment(lines[row].started_at)}>${dateTime(lines[row].started_at)}</span>` },
  { key: "took", title: "Took", className: "number", cell: (row) => duration(lines[row].seconds) },
  { key: "attempts", title: "Attempts", className: "number", cell: (row) => count(lines[row].attempts) },
  { key: "interruptions", title: "Interruptions", className: "number", cell: (row) => count(lines[row].interruptions) },
  { key: "errors", title: "Errors", className: "number", cell: (row) => count(lines[row].errors) },
  { key: "cost", title: "Cost", className: "number", cell: (row) => amount(lines[row].cost, lines[row].currency) },
];

export function Runs() {
  const params = route.value.params;
  const [answer, setAnswer] = useState(null);
  const [error, setError] = useState(null);
  const query = { q: params.get("q"), status: params.get("status"), cause: params.get("cause"), namespace: params.get("namespace") };
  const asked = JSON.stringify(query);

  useEffect(() => {
    const stop = new AbortController();
    let timer = 0;
    const look = async () => {
      try {
        if (!document.hidden) {
          setAnswer(await get("runs", { ...query, limit: AT_ONCE }, { signal: stop.signal }));
          setError(null);
        }
      } catch (problem) {
        if (problem.name === "AbortError") return;
        setError(problem);
      }
      timer = setTimeout(look, EVERY);
    };
    look();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [asked]);

  const lines = answer?.lines ?? [];
  const open = (row) => go(href("timeline", lines[row].run));
  return html`<main class="view view-runs">
    <div class="title"><h1>Runs</h1>
      <form class="filters" role="search" onSubmit=${(event) => event.preventDefault()}>
        <input type="search" aria-label="Find a run" placeholder="Find a run" value=${params.get("q") ?? ""}
          onInput=${(event) => set({ q: event.currentTarget.value })} />
        <label>Status <select value=${params.get("status") ?? ""} onChange=${(event) => set({ status: event.currentTarget.value })}>
          ${["", "running", "stopped", "succeeded", "failed", "cancelled"].map((status) => html`<option value=${status}>${status || "any"}</option>`)}
        </select></label>
      </form>
    </div>
    ${error && html`<${Problem} error=${error} />`}
    ${answer?.problems?.map((problem) => html`<p class="problem" key=${problem.run}>${problem.message}</p>`)}
    ${!answer && !error && html`<${Loading} what="runs" />`}
    ${answer && !lines.length && (asked === "{}" || !Object.values(query).some(Boolean)
      ? html`<${Empty}><p>There are no runs yet. Start one with:</p><p><code>spotwright run pipeline.py</code></p><//>`
      : html`<${Empty}><p>No run matches. <a href=${href("runs")}>Show all</a></p><//>`)}
    ${lines.length > 0 && html`<${Grid} name="runs" columns=${COLUMNS(lines)} rows=${lines.length} open=${open}
      address=${(row) => href("timeline", lines[row].run)} label=${(row) => `${lines[row].run}, ${lines[row].status}`} />`}
  </main>`;
}
