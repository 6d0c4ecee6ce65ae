// The runs of a state folder or a cluster, newest first.
import { html } from "htm/preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { get } from "../api.js";
import { amount, count, dateTime, duration, moment, money, percent } from "../format.js";
import { Empty, Loading, Problem, Status } from "../parts/common.js";
import { Grid } from "../parts/grid.js";
import { go, href, route, set } from "../routes.js";

const EVERY = 2000; // milliseconds between looks at the rows that are shown, while the window is visible
const AT_ONCE = 100; // rows in one answer
const PAUSE = 60; // milliseconds without scrolling until rows are asked for

// Rows come by pages of the list, those that the window shows. `at(row)` is the line of a row, or nothing until it has come.
class Rows {
  constructor(query, changed) {
    Object.assign(this, { query, changed, pages: new Map(), shown: new Set([0]), touched: null, timer: 0, stop: new AbortController() });
    this.look();
  }

  at = (row) => {
    if (!this.touched) {
      this.touched = new Set();
      queueMicrotask(() => {
        this.shown = this.touched;
        this.touched = null;
        if ([...this.shown].every((page) => this.pages.has(page))) return;
        clearTimeout(this.soon);
        this.soon = setTimeout(() => this.load([...this.shown].filter((page) => !this.pages.has(page))), PAUSE);
      });
    }
    this.touched.add(Math.floor(row / AT_ONCE));
    return this.pages.get(Math.floor(row / AT_ONCE))?.[row % AT_ONCE];
  };

  async look() {
    if (!document.hidden) await this.load([...this.shown]);
    if (!this.stop.signal.aborted) this.timer = setTimeout(() => this.look(), EVERY);
  }

  async load(pages) {
    try {
      for (const page of pages) {
        const answer = await get("runs", { ...this.query, limit: AT_ONCE, from: page * AT_ONCE }, { signal: this.stop.signal });
        this.pages.set(page, answer.lines);
        this.changed({ answer, error: null });
      }
    } catch (error) {
      if (error.name !== "AbortError") this.changed({ error });
    }
  }

  close() {
    this.stop.abort();
    clearTimeout(this.timer);
    clearTimeout(this.soon);
  }
}

// A range with its unit once, as short as a column needs it.
function between({ low, high }, text) {
  const words = text(low) === text(high) ? text(low) : `${text(low).split(" ")[0]}–${text(high)}`;
  return html`<span title=${words}>${words}</span>`;
}
const wasted = (line) => (line.wasted ? between(line.wasted, (each) => amount(each, line.currency)) : "");
const saved = (line) => (line.saved ? between(line.saved, (each) => money(each, line.currency)) : "");
const late = (line) => (line.deadline ? { true: "late", false: "in time" }[line.late] ?? "open" : "");

function status(line) {
  if (line.problem) return html`<span title=${line.problem}>unreadable</span>`;
  return line.unread ? "reading…" : html`<${Status} status=${line.status} />`;
}

// A column whose cell has nothing to show until its line is there.
const column = (at, key, title, className, cell, sort = true) => ({ key, title, className, sort, cell: (row) => (at(row) ? cell(at(row)) : "") });
const figure = (at, key, title, cell, width = "") => column(at, key, title, `number ${width}`, (line) => (line.status ? cell(line) : ""));
const columnsOf = (at, hasDeadlines) => [
  column(at, "run", "Run", "wide name", (line) => line.run),
  column(at, "pipeline", "Pipeline", "name", (line) => line.pipeline ?? "", false),
  column(at, "status", "Status", "status", status),
  figure(at, "progress", "Done", (line) => percent(line.progress)),
  column(at, "began", "Began", "moment", (line) => html`<span title=${moment(line.started_at)}>${dateTime(line.started_at)}</span>`),
  figure(at, "took", "Took", (line) => duration(line.seconds)),
  figure(at, "attempts", "Attempts", (line) => count(line.attempts)),
  figure(at, "interruptions", "Interruptions", (line) => count(line.interruptions), "long"),
  figure(at, "errors", "Errors", (line) => count(line.errors)),
  figure(at, "cost", "Cost", (line) => amount(line.cost, line.currency), "money"),
  figure(at, "wasted", "Wasted", wasted, "range"),
  figure(at, "saved", "Saved", saved, "range"),
  ...(hasDeadlines ? [{ ...figure(at, "late", "Deadline", late), className: "late", sort: false }] : []),
];
const WORDS = ["run", "status"]; // columns that are sorted from A on; the others from the largest down

export function Runs() {
  const params = route.value.params;
  const [{ answer, error }, setState] = useState({});
  const query = Object.fromEntries(["q", "status", "cause", "namespace", "sort"].map((name) => [name, params.get(name)]));
  const asked = JSON.stringify(query);
  const rows = useRef(null);

  useEffect(() => {
    setState({});
    rows.current = new Rows(query, (change) => setState((before) => ({ ...before, ...change })));
    return () => rows.current.close();
  }, [asked]);

  const at = (row) => rows.current?.at(row);
  const total = answer?.total ?? 0;
  const sorted = { key: query.sort?.replace("-", "") || "began", down: query.sort ? query.sort.startsWith("-") : true };
  const sort = (key) => {
    const down = sorted.key === key ? !sorted.down : !WORDS.includes(key);
    set({ sort: key === "began" && down ? "" : `${down ? "-" : ""}${key}` });
  };
  const open = (row) => at(row) && go(href("timeline", at(row).run));
  return html`<main class="view view-runs">
    <div class="title"><h1>Runs</h1>
      <form class="filters" role="search" onSubmit=${(event) => event.preventDefault()}>
        <input type="search" aria-label="Find a run" placeholder="Find a run" value=${params.get("q") ?? ""}
          onInput=${(event) => set({ q: event.currentTarget.value })} />
        <label>Status <select value=${params.get("status") ?? ""} onChange=${(event) => set({ status: event.currentTarget.value })}>
          ${["", "running", "stopped", "succeeded", "failed", "cancelled"].map((status) => html`<option value=${status}>${status || "any"}</option>`)}
        </select></label>
        <label>With <select value=${params.get("cause") ?? ""} onChange=${(event) => set({ cause: event.currentTarget.value })}>
          ${["", "interruption", "error"].map((cause) => html`<option value=${cause}>${cause ? `${cause}s` : "anything"}</option>`)}
        </select></label>
        ${(params.get("namespace") || answer?.lines.some((line) => line.namespace)) && html`<input type="search" aria-label="Namespace" placeholder="Namespace"
          value=${params.get("namespace") ?? ""} onChange=${(event) => set({ namespace: event.currentTarget.value })} />`}
      </form>
    </div>
    ${answer && answer.indexed < answer.of && html`<p class="loading" role="status">${count(answer.indexed)} of ${count(answer.of)} runs are read so far; filters and orders know these.</p>`}
    ${error && html`<${Problem} error=${error} />`}
    ${answer?.problems?.map((problem) => html`<p class="problem" key=${problem.run}>${problem.message}</p>`)}
    ${!answer && !error && html`<${Loading} what="runs" />`}
    ${answer && !total && (!Object.values(query).some(Boolean)
      ? html`<${Empty}><p>There are no runs yet. Start one with:</p><p><code>spotwright run pipeline.py</code></p><//>`
      : html`<${Empty}><p>No run matches. <a href=${href("runs")}>Show all</a></p><//>`)}
    ${total > 0 && html`<${Grid} name="runs" columns=${columnsOf(at, answer?.lines.some((line) => line.deadline))} rows=${total} open=${open} sort=${sorted} onSort=${sort}
      address=${(row) => at(row) && href("timeline", at(row).run)}
      label=${(row) => (at(row) ? `${at(row).run}, ${at(row).status ?? (at(row).problem ? "unreadable" : "being read")}` : "loading")} />`}
  </main>`;
}
