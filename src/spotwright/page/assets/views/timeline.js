// The attempts of a run over time: lanes by task, node or pool, or the same as a table.
import { html } from "htm/preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { get, runPath } from "../api.js";
import { count, duration, moment, offset } from "../format.js";
import { Empty, say } from "../parts/common.js";
import { Grid } from "../parts/grid.js";
import { Lanes, Legend, Patterns } from "../parts/lanes.js";
import { attemptSentence, causeOf, extentOf, laneSentence, lanesOf } from "../parts/marks.js";
import { Strip } from "../parts/strip.js";
import { go, href, route, set } from "../routes.js";
import { CAUSES, causeText, classOf } from "../words.js";

const BY = ["task", "node", "pool"];
const EVERY = 250; // milliseconds between two drawings of what grows
const LEAST = 0.02; // seconds: the shortest window
const SETTLED = 300; // milliseconds until a window is written into the address
const isStill = matchMedia("(prefers-reduced-motion: reduce)");

export function Timeline({ run }) {
  const attempts = run.attempts.value;
  const tasks = run.tasks.value;
  const nodes = run.nodes.value;
  const version = `${tasks.version.value}.${attempts.version.value}.${nodes.version.value}`;
  const params = route.value.params;
  const by = BY.includes(params.get("by")) ? params.get("by") : "task";
  const asTable = params.get("as") === "table";
  const q = params.get("q") ?? "";
  const cause = params.get("cause") ?? "";
  useTicks(run.driven.value);
  const now = run.now();
  const { marks, bands = [] } = run.timeline.value;
  const all = { tasks, attempts, nodes };
  const extent = extentOf(all, now, marks);
  const [zoomed, setZoomed] = useWindow(params);
  const shown = windowOf(zoomed, extent, now);
  const lanes = useMemo(() => lanesOf(all, by, { q, cause }), [run, attempts, version, by, q, cause]);
  const [reasons, seen] = useReasons(run);
  const causes = useMemo(() => causesOf(attempts), [attempts, version]);

  const address = (row) => href("attempt", run.name, { task: tasks.path[attempts.task[row]], n: attempts.number[row] });
  const sentence = (row) => attemptSentence(all, row, now, reasons.get(`${row}.${attempts.ended[row]}`) ?? "");
  function open(lane, row) {
    const found = row ?? (lane.by === "task" ? lane.attempts.at(-1) : undefined);
    if (found === undefined) return lane.by === "node" ? go(href("nodes", run.name, { q: lane.title })) : undefined;
    set({ lane: lane.key, task: tasks.path[attempts.task[found]], n: attempts.number[found], ...written(zoomed) });
    return go(address(found));
  }

  const select = ({ from, to }) => {
    const width = Math.max(LEAST, to - from);
    if (width >= extent * 0.995) return setZoomed(null);
    const at = Math.max(0, Math.min(extent - width, from));
    return setZoomed({ from: at, to: at + width, follows: false });
  };
  const zoom = (factor) => {
    const width = Math.max(LEAST, (shown.to - shown.from) * factor);
    if (zoomed?.follows) return width >= extent ? setZoomed(null) : setZoomed({ ...zoomed, to: zoomed.from + width });
    const middle = (shown.from + shown.to) / 2;
    return select({ from: middle - width / 2, to: middle + width / 2 });
  };
  const follow = () => {
    const width = Math.min(shown.to - shown.from, Math.max(60, extent / 4));
    setZoomed(zoomed?.follows ? { from: shown.from, to: shown.to, follows: false } : { from: 0, to: width, follows: true });
  };
  const pan = (from) => select({ from, to: from + shown.to - shown.from });
  const KEYS = { "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), 0: () => setZoomed(null), ...(run.driven.value ? { f: follow } : {}) };
  const key = (event) => {
    const act = KEYS[event.key];
    act?.();
    return Boolean(act);
  };
  const box = useRef(null);
  const wheel = useRef(null);
  wheel.current = (event) => {
    if (!event.ctrlKey && !event.shiftKey && Math.abs(event.deltaX) <= Math.abs(event.deltaY)) return;
    event.preventDefault();
    const by = event.deltaX || event.deltaY;
    if (event.ctrlKey) zoom(event.deltaY > 0 ? 1.25 : 0.8);
    else pan(shown.from + (by / 1000) * (shown.to - shown.from));
  };
  useEffect(() => {
    const listen = (event) => wheel.current(event);
    const element = box.current;
    element?.addEventListener("wheel", listen, { passive: false });
    return () => element?.removeEventListener("wheel", listen);
  }, [asTable]);

  const has = {
    nodes: by === "node",
    notice: useMemo(() => attempts.noticed.some((at) => at !== null), [attempts, version]),
    taken: causes.includes("interrupted") || causes.includes("lost"),
    left_out: bands.some((band) => band.kind === "left_out") && by === "pool",
    undriven: bands.some((band) => band.kind === "undriven"),
    planned: Boolean(marks?.planned),
  };
  const choice = (name, text, isOn, change) => html`<button key=${name} type="button" aria-pressed=${isOn} onClick=${() => set(change)}>${text}</button>`;
  const selected = useMemo(() => (params.get("n") ? { lane: params.get("lane"), task: params.get("task"), number: Number(params.get("n")) } : null), [run]);
  return html`<section class="view view-timeline" aria-label="Timeline">
    <${Patterns} />
    <form class="filters" role="search" onSubmit=${(event) => event.preventDefault()}>
      <div class="switch" role="group" aria-label="Lanes by">
        ${BY.map((each) => choice(each, `By ${each}`, !asTable && by === each, { by: each === "task" ? "" : each, as: "" }))}
        ${choice("table", "Table", asTable, { as: "table" })}
      </div>
      <input type="search" aria-label=${`Find a ${asTable ? "task" : by}`} placeholder=${`Find a ${asTable ? "task" : by}`} value=${q} onInput=${(event) => set({ q: event.currentTarget.value })} />
      <label>Cause <select value=${cause} onChange=${(event) => set({ cause: event.currentTarget.value })}>
        ${["", ...new Set([...causes, ...(cause ? [cause] : [])])].map((word) => html`<option key=${word} value=${word}>${word || "any"}</option>`)}
      </select></label>
      ${!asTable && html`<div class="switch" role="group" aria-label="Window">
        <button type="button" aria-label="Zoom in" title="Zoom in (+)" onClick=${() => zoom(0.5)}>+</button>
        <button type="button" aria-label="Zoom out" title="Zoom out (-)" onClick=${() => zoom(2)}>−</button>
        <button type="button" title="The whole run (0)" aria-pressed=${!zoomed} onClick=${() => setZoomed(null)}>Whole run</button>
        ${run.driven.value && html`<button type="button" title="Follow now (f)" aria-pressed=${Boolean(zoomed?.follows)} onClick=${follow}>Follow</button>`}
      </div>`}
    </form>
    ${asTable
      ? html`<${Table} run=${run} all=${all} q=${q} cause=${cause} version=${version} address=${address} now=${now} />`
      : html`<div class="timeline-body" ref=${box}>
        <${Strip} attempts=${attempts} version=${version} extent=${extent} now=${now} window=${shown} select=${select} />
        ${lanes.length
          ? html`<${Lanes} key=${by} lanes=${lanes} run=${run} window=${shown} now=${now} marks=${marks} bands=${bands} sentence=${sentence} laneSentence=${(lane) => laneSentence(all, lane)}
              address=${(lane, row) => (row === undefined ? "" : address(row))} open=${open} onKey=${key} pan=${pan} seen=${seen} selected=${selected} version=${version} why=${reasons.size} />`
          : html`<${Empty}><p>${q || cause ? html`No ${by} matches. <a href=${href("timeline", run.name, { by: params.get("by") })}>Show all</a>` : by === "task" ? "This run has no tasks yet." : `This run has had no ${by} yet.`}</p><//>`}
        <p class="note keys">${count(lanes.length)} ${by}s, ${count(attempts.rows)} attempts; the run began <span title=${moment(run.t0)}>${moment(run.t0)}</span>. Keys: arrows go from mark to mark, Enter opens, + − 0 zoom, Shift with arrows moves the window${run.driven.value ? ", f follows" : ""}.</p>
        <${Legend} causes=${causes} has=${has} />
      </div>`}
  </section>`;
}

// Draws again a few times a second while the run goes on; not for people who want no motion.
function useTicks(isOn) {
  const [, draw] = useState(0);
  useEffect(() => {
    if (!isOn || isStill.matches) return undefined;
    let timer = 0;
    let frame = 0;
    const step = () => {
      frame = requestAnimationFrame(() => {
        draw((number) => number + 1);
        timer = setTimeout(step, EVERY);
      });
    };
    timer = setTimeout(step, EVERY);
    return () => {
      clearTimeout(timer);
      cancelAnimationFrame(frame);
    };
  }, [isOn]);
}

// The window in the address: from and to in seconds, or the width that follows now. null: the whole run.
const read = (params) => {
  const from = Number.parseFloat(params.get("from"));
  const to = Number.parseFloat(params.get("to"));
  if (params.get("f") && to > 0) return { from: 0, to, follows: true };
  return Number.isFinite(from) && to > from ? { from, to, follows: false } : null;
};
const written = (zoomed) => {
  const text = (value) => String(Math.round(value * 1000) / 1000);
  if (!zoomed) return { from: "", to: "", f: "" };
  if (zoomed.follows) return { from: "", to: text(zoomed.to - zoomed.from), f: "1" };
  return { from: text(zoomed.from), to: text(zoomed.to), f: "" };
};

function useWindow(params) {
  const [zoomed, setZoomed] = useState(() => read(params));
  const told = useRef(JSON.stringify(written(zoomed)));
  const asked = JSON.stringify(written(read(params)));
  useEffect(() => {
    if (asked !== told.current) {
      told.current = asked;
      setZoomed(read(params)); // somebody went back
    }
  }, [asked]);
  useEffect(() => {
    const text = JSON.stringify(written(zoomed));
    if (text === told.current) return undefined;
    const timer = setTimeout(() => {
      told.current = text;
      set(written(zoomed));
    }, SETTLED);
    return () => clearTimeout(timer);
  }, [zoomed]);
  return [zoomed, setZoomed];
}

function windowOf(zoomed, extent, now) {
  if (!zoomed) return { from: 0, to: extent };
  if (!zoomed.follows) return zoomed;
  const width = zoomed.to - zoomed.from;
  return { from: now - width * 0.95, to: now + width * 0.05 };
}

// Why attempts ended, in the words of the journal: asked for when somebody looks at one, and kept.
function useReasons(run) {
  const [reasons, setReasons] = useState(() => new Map());
  const state = useRef({ timer: 0, row: -1, asked: new Set() });
  useEffect(() => {
    state.current.asked.clear();
    setReasons(new Map());
    return () => clearTimeout(state.current.timer);
  }, [run.tasks.value]);
  const seen = (row) => {
    const { attempts, tasks } = { attempts: run.attempts.value, tasks: run.tasks.value };
    const key = `${row}.${attempts.ended[row]}`;
    if (state.current.row === key) return;
    state.current.row = key;
    clearTimeout(state.current.timer);
    if (attempts.ended[row] === null || state.current.asked.has(key)) return;
    state.current.timer = setTimeout(async () => {
      state.current.asked.add(key);
      try {
        const answer = await get(runPath(run.name, "attempt"), { task: tasks.path[attempts.task[row]], n: attempts.number[row] });
        const why = answer.attempt?.why;
        if (why) setReasons((known) => new Map(known).set(key, why));
        if (why && document.activeElement?.matches("a.mark")) say(why); // its sentence was read without it
      } catch {
        state.current.asked.delete(key); // the sentence stays without its reason; the next look asks again
      }
    }, 150);
  };
  return [reasons, seen];
}

function causesOf(attempts) {
  const found = new Set();
  for (let row = 0; row < attempts.rows; row++) found.add(causeOf(attempts, row));
  return Object.keys(CAUSES).filter((cause) => found.has(cause) && cause !== "pending");
}

function Table({ run, all, q, cause, version, address, now }) {
  const { attempts, tasks } = all;
  const text = q.toLowerCase();
  const order = useMemo(() => {
    const rows = [];
    for (let row = 0; row < attempts.rows; row++) {
      if (text && !tasks.path[attempts.task[row]].toLowerCase().includes(text)) continue;
      if (cause && causeOf(attempts, row) !== cause) continue;
      rows.push(row);
    }
    return rows.sort((a, b) => attempts.task[a] - attempts.task[b] || attempts.number[a] - attempts.number[b]);
  }, [attempts, version, text, cause]);
  const columns = [
    { key: "task", title: "Attempt", className: "wide name", cell: (at) => `${tasks.path[attempts.task[order[at]]]} ${attempts.number[order[at]]}` },
    { key: "cause", title: "How it ended", className: "name", cell: (at) => html`<span class=${classOf("cause", causeOf(attempts, order[at]))}>${causeText(causeOf(attempts, order[at]))}</span>` },
    { key: "pool", title: "Pool", className: "name", cell: (at) => attempts.word("pool", order[at]) },
    { key: "node", title: "Node", className: "name", cell: (at) => attempts.word("node", order[at]) },
    { key: "waited", title: "Waited", className: "number", cell: (at) => (attempts.bound[order[at]] === null || attempts.placed[order[at]] === null ? "" : duration(attempts.bound[order[at]] - attempts.placed[order[at]])) },
    { key: "began", title: "Began", className: "number", cell: (at) => offset(attempts.bound[order[at]]) },
    { key: "ran", title: "Ran", className: "number", cell: (at) => (attempts.bound[order[at]] === null ? "" : duration((attempts.ended[order[at]] ?? now) - attempts.bound[order[at]])) },
    { key: "kept", title: "Kept", className: "number", cell: (at) => keptOf(attempts.kept_low[order[at]], attempts.kept_high[order[at]]) },
  ];
  return html`<p class="note">${count(order.length)} of ${count(attempts.rows)} attempts</p>
    <${Grid} name="attempts" columns=${columns} rows=${order.length} version=${version} address=${(at) => address(order[at])} open=${(at) => go(address(order[at]))}
      label=${(at) => attemptSentence(all, order[at], now)} />`;
}

const keptOf = (low, high) => {
  if (low === null) return "";
  const of = (share) => `${Math.round(share * 100)}`;
  return of(low) === of(high) ? `${of(low)}%` : `${of(low)}–${of(high)}%`;
};
