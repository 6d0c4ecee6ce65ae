// All events of a run in order, facts and decisions told apart.
import { html } from "htm/preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { signal } from "@preact/signals";
import { get, runPath } from "../api.js";
import { count, moment, offset } from "../format.js";
import { Empty, Loading, Problem } from "../parts/common.js";
import { Grid } from "../parts/grid.js";
import { href, route, set } from "../routes.js";

const AT_ONCE = 200; // events of one question
const GAP = 300; // milliseconds: a filter is read when typing pauses

// The events of a run that fit a filter, read as they are looked at. Without a filter their numbers have no gaps, so any part of
// them is read directly; with one they are read from the first on.
class Rows {
  constructor(run, task, kind) {
    this.run = run;
    this.filter = { task, kind };
    this.isFiltered = Boolean(task || kind);
    this.rows = [];
    this.next = 0; // the number after which the next page of a filter begins; null at the end
    this.kinds = [];
    this.seq = 0;
    this.asking = new Set();
    this.error = null;
    this.version = signal(0);
    this.closed = false;
  }

  get count() {
    return this.isFiltered ? this.rows.length : this.seq;
  }

  async ask(after) {
    if (this.asking.has(after) || this.closed) return;
    this.asking.add(after);
    try {
      const answer = await get(runPath(this.run, "history"), { ...this.filter, after: after || "", limit: AT_ONCE });
      if (this.closed) return;
      if (this.isFiltered) {
        if (after === this.next) {
          this.rows.push(...answer.rows);
          this.last = answer.rows.at(-1)?.seq ?? after;
          this.next = answer.next;
          this.until = answer.seq;
        }
      } else for (const row of answer.rows) this.rows[row.seq - 1] = row;
      this.kinds = answer.kinds;
      this.seq = Math.max(this.seq, answer.seq);
      this.t0 = answer.t0;
      this.error = null;
    } catch (error) {
      this.error = error;
    }
    this.asking.delete(after);
    this.version.value += 1;
  }

  // The row of a grid, asked for if it is not here.
  row(index) {
    const row = this.rows[index];
    if (!row && !this.isFiltered) this.ask(Math.floor(index / AT_ONCE) * AT_ONCE);
    if (this.isFiltered && this.next && index >= this.rows.length - 40) this.ask(this.next);
    return row;
  }

  // There are new events.
  grow(seq) {
    if (seq <= this.seq) return;
    if (!this.isFiltered) this.seq = seq;
    else if (this.next === null && seq > this.until) {
      this.next = this.until;
      this.ask(this.next);
    }
  }
}

export function History({ run }) {
  const params = route.value.params;
  const task = params.get("task") ?? "";
  const kind = params.get("kind") ?? "";
  const selected = Number(params.get("event") ?? 0) || 0;
  const rows = useMemo(() => new Rows(run.name, task, kind), [run, run.made, task, kind]);
  useEffect(() => {
    rows.ask(0);
    return () => (rows.closed = true);
  }, [rows]);
  run.attempts.value.version.value;
  run.tasks.value.version.value;
  const head = run.head.value;
  useEffect(() => rows.grow(Math.max(run.seq, head?.seq ?? 0)));
  const version = rows.version.value;
  const at = selected ? (rows.isFiltered ? rows.rows.findIndex((row) => row.seq === selected) : selected - 1) : -1;
  const shown = at >= 0 ? rows.row(at) : null;
  const cell = (read) => (index) => {
    const row = rows.row(index);
    return row ? read(row) : "…";
  };
  const columns = [
    { key: "seq", title: "Number", className: "number", cell: cell((row) => row.seq) },
    { key: "at", title: "At", className: "number", cell: cell((row) => html`<span title=${moment(row.at)}>${offset(row.at - rows.t0)}</span>`) },
    { key: "decision", title: "Fact or decision", className: "sort", cell: cell((row) => html`<span class=${row.decision ? "tag decision" : "tag fact"}>${row.decision ? "decision" : "fact"}</span>`) },
    { key: "kind", title: "Kind", className: "kind", cell: cell((row) => row.kind) },
    { key: "text", title: "What happened", className: "wide event-text", cell: cell((row) => html`<span title=${row.text}>${row.text}</span>`) },
  ];
  return html`<section class="view view-history" aria-label="History">
    <form class="filters" role="search" onSubmit=${(event) => event.preventDefault()}>
      <${Late} label="Task" placeholder="Path of a task" value=${task} onValue=${(text) => set({ task: text, event: "" })} />
      <label>Kind <select value=${kind} onChange=${(event) => set({ kind: event.currentTarget.value, event: "" })}>
        ${["", ...(rows.kinds.length ? rows.kinds : kind ? [kind] : [])].map((word) => html`<option key=${word} value=${word}>${word || "any"}</option>`)}
      </select></label>
      <span class="note" role="status">${version === 0 ? "" : rows.isFiltered ? `${count(rows.count)}${rows.next ? "+" : ""} of ${count(rows.seq)} events` : `${count(rows.seq)} events`}</span>
    </form>
    ${rows.error && html`<${Problem} error=${rows.error} retry=${() => rows.ask(rows.next ?? 0)} />`}
    ${version === 0 && html`<${Loading} what="events" />`}
    ${version > 0 && rows.count === 0 && !rows.error && html`<${Empty}><p>No event fits. <a href=${href("history", run.name)}>Show all</a></p><//>`}
    ${rows.count > 0 && html`<${Grid} name="events" columns=${columns} rows=${rows.count} version=${version} selected=${at}
      open=${(index) => set({ event: rows.rows[index]?.seq === selected ? "" : rows.rows[index]?.seq })} label=${(index) => rows.rows[index] && `${rows.rows[index].decision ? "decision" : "fact"}, ${rows.rows[index].text}`} />`}
    ${shown && html`<section class="event-shown" aria-label="Event">
      <div class="title"><h2>Event ${shown.seq}, ${shown.kind}</h2>
        <nav class="links" aria-label="Of the event">
          ${shown.task && shown.attempt > 0 && html`<a href=${href("attempt", run.name, { task: shown.task, n: shown.attempt })}>${shown.task}, attempt ${shown.attempt}</a>`}
          ${shown.task && shown.task !== task && html`<button type="button" class="quiet" onClick=${() => set({ task: shown.task, event: shown.seq })}>Only this task</button>`}
          <button type="button" class="quiet" onClick=${() => set({ event: "" })}>Close</button>
        </nav></div>
      <p>${shown.text}</p><p class="note">${moment(shown.at)}</p>
      <pre tabindex="0">${JSON.stringify(shown.json, null, 2)}</pre>
    </section>`}
  </section>`;
}

// A field whose text counts when typing pauses.
function Late({ label, placeholder, value, onValue }) {
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  useEffect(() => {
    if (text === value) return () => {};
    const timer = setTimeout(() => onValue(text), GAP);
    return () => clearTimeout(timer);
  }, [text]);
  return html`<input type="search" aria-label=${label} placeholder=${placeholder} value=${text} onInput=${(event) => setText(event.currentTarget.value)} />`;
}
