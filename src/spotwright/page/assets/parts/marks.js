// What the lanes of a timeline hold, as numbers and sentences: no element is made here.
import { clockStep, count, duration, offset, percent, plural, tick } from "../format.js";
import { causeText } from "../words.js";

const STACKED = 4; // attempts at once that a lane draws one above the other; with more it draws how many run
const BAR = { top: 4, height: 16 };
export const LANE = 24; // pixels
const NEAR = 2; // pixels: what is nearer is one mark

// The word for an attempt's bar: the cause of its end, or what it does now.
export const causeOf = (attempts, row) =>
  attempts.word("cause", row) || (attempts.ended[row] !== null ? "pending" : attempts.bound[row] === null ? "pending" : "running");

const beginning = (attempts, row) => attempts.bound[row] ?? attempts.placed[row] ?? 0;

// Groups of attempts, one for each task, node or pool. `q`: a part of the title; `cause`: a cause that one of its attempts has.
export function lanesOf({ tasks, attempts, nodes }, by, { q = "", cause = "" } = {}) {
  const groups = new Map();
  const group = (key, title, more) => {
    if (!groups.has(key)) groups.set(key, { key, title, attempts: [], nodes: [], by, ...more });
    return groups.get(key);
  };
  if (by === "task") {
    const of = Array.from({ length: tasks.rows }, () => []);
    for (let row = 0; row < attempts.rows; row++) of[attempts.task[row]].push(row);
    for (let row = 0; row < tasks.rows; row++) {
      if (!of[row].length && tasks.word("kind", row) !== "task") continue;
      const title = tasks.path[row];
      const lane = group(`${title}${tasks.retired[row] ? " (retired)" : ""}`, title, { task: row, note: tasks.retired[row] ? "of an earlier pipeline" : "" });
      lane.attempts = of[row].sort((a, b) => attempts.number[a] - attempts.number[b]);
    }
  } else {
    for (let row = 0; row < nodes.rows; row++) {
      const pool = nodes.word("pool", row);
      const name = by === "node" ? nodes.name[row] : pool;
      group(name, name, { pool, capacity: nodes.word("capacity", row) }).nodes.push(row);
    }
    for (let row = 0; row < attempts.rows; row++) {
      const name = attempts.bound[row] === null ? "" : attempts.word(by, row);
      group(name, name || "without a node", { pool: attempts.word("pool", row), capacity: attempts.word("capacity", row) }).attempts.push(row);
    }
  }
  const text = q.toLowerCase();
  let lanes = [...groups.values()].filter(
    (lane) =>
      (!text || lane.title.toLowerCase().includes(text) || (lane.pool ?? "").toLowerCase().includes(text)) &&
      (!cause || lane.attempts.some((row) => causeOf(attempts, row) === cause)),
  );
  if (by !== "task") {
    const rank = (lane) => (lane.key === "" ? 2 : lane.capacity === "spot" ? 0 : 1);
    lanes = lanes.sort((a, b) => rank(a) - rank(b) || a.pool.localeCompare(b.pool) || a.title.localeCompare(b.title, "en", { numeric: true }));
  }
  return lanes.map((lane) => place(lane, attempts));
}

// Sorts the attempts of a lane by time, and gives each the place above or below others that run at once.
function place(lane, attempts) {
  lane.rows = 1;
  if (lane.by === "task") return lane;
  lane.attempts.sort((a, b) => beginning(attempts, a) - beginning(attempts, b));
  const free = []; // until when each place is taken
  lane.slot = new Map();
  for (const row of lane.attempts) {
    const from = beginning(attempts, row);
    let slot = free.findIndex((until) => until <= from);
    if (slot < 0) slot = free.length;
    if (slot >= STACKED) {
      lane.rows = STACKED + 1;
      return lane;
    }
    free[slot] = attempts.ended[row] ?? Infinity;
    lane.slot.set(row, slot);
  }
  lane.rows = Math.max(1, free.length);
  return lane;
}

// The seconds that a run takes in the timeline: from its first event to its end, its present, or a deadline that is near.
export function extentOf({ attempts, nodes }, now, marks = {}) {
  let until = Math.max(now, 0.1);
  for (let row = 0; row < attempts.rows; row++) until = Math.max(until, attempts.ended[row] ?? 0);
  for (let row = 0; row < nodes.rows; row++) until = Math.max(until, nodes.gone[row] ?? 0);
  for (const at of [marks?.deadline, marks?.last_moment, marks?.planned?.[1]]) {
    if (at !== null && at !== undefined && at < until * 2) until = Math.max(until, at);
  }
  return until * 1.01;
}

// Where an attempt lies in a window: pixels, clipped by the caller's drawing.
export function spanOf(attempts, row, view, now) {
  const x = (at) => (at - view.from) * view.scale;
  const placed = attempts.placed[row] ?? attempts.bound[row] ?? 0;
  const bound = attempts.bound[row];
  const ended = attempts.ended[row] ?? Math.max(now, bound ?? placed);
  return { placed: x(placed), bound: bound === null ? null : x(bound), ended: x(ended), due: attempts.due[row] === null ? null : x(attempts.due[row]) };
}

// What is drawn over what: the last one is on top.
const LAYERS = ["idle", "boot", "area", "wait", "tick", "backoff", "bar", "unsure", "wasted", "outline", "notch", "gone", "notice", "taken"];

const within = (view, from, to) => to >= -4 && from <= view.width + 4;
const clip = (view, x) => Math.max(-4, Math.min(view.width + 4, x));
const n1 = (value) => Math.round(value * 10) / 10;
const box = (x0, y, x1, h) => `M${n1(x0)} ${n1(y)}H${n1(x1)}V${n1(y + h)}H${n1(x0)}Z`;

// The shapes of a lane in a window: one path for all marks of a kind, so that a lane has few elements however many attempts.
export function shapesOf(lane, attempts, nodes, view, now) {
  const paths = new Map(); // class of the path -> its drawing
  const add = (name, drawing) => paths.set(name, (paths.get(name) ?? "") + drawing);
  const letters = [];
  const labels = [];
  for (const row of lane.nodes) if (lane.by === "node") drawNode(nodes, row, view, now, add);
  if (lane.rows > STACKED) drawCounts(lane, attempts, view, now, add);
  else {
    const height = BAR.height / lane.rows;
    const merged = Array.from({ length: lane.rows }, () => null);
    const flush = (slot) => {
      const mark = merged[slot];
      merged[slot] = null;
      if (!mark) return;
      const [cause] = [...mark.causes].sort((a, b) => b[1] - a[1])[0];
      add(`bar c:${cause}`, box(mark.from, BAR.top + slot * height, Math.max(mark.to, mark.from + NEAR), height - (lane.rows > 1 ? 1 : 0)));
      if (mark.count > 1 && mark.to - mark.from > 8 + 7 * String(mark.count).length) labels.push({ x: (mark.from + mark.to) / 2, text: String(mark.count), on: true });
    };
    for (const row of lane.attempts) {
      const at = spanOf(attempts, row, view, now);
      const from = lane.by === "task" || at.bound === null ? at.placed : at.bound;
      const slot = lane.slot?.get(row) ?? 0;
      const ends = Math.max(at.ended, at.due ?? 0);
      if (!within(view, from, ends)) continue;
      const cause = causeOf(attempts, row);
      if (ends - from < NEAR * 2) {
        const mark = merged[slot];
        if (mark && from - mark.to < NEAR) {
          mark.to = Math.max(mark.to, ends);
          mark.count += 1;
          mark.causes.set(cause, (mark.causes.get(cause) ?? 0) + 1);
        } else {
          flush(slot);
          merged[slot] = { from, to: ends, count: 1, causes: new Map([[cause, 1]]) };
        }
        continue;
      }
      flush(slot);
      drawAttempt(attempts, row, at, cause, BAR.top + slot * height, height - (lane.rows > 1 ? 1 : 0), lane.by, view, add, letters, labels);
    }
    merged.forEach((_, slot) => flush(slot));
  }
  const layer = (name) => LAYERS.indexOf(name.split(" ")[0]);
  return { paths: [...paths].sort(([a], [b]) => layer(a) - layer(b)), letters, labels };
}

function drawAttempt(attempts, row, at, cause, top, height, by, view, add, letters, labels) {
  const middle = top + height / 2;
  if (by === "task" || at.bound === null) {
    const until = at.bound ?? at.ended;
    if (until - at.placed >= 1 && within(view, at.placed, until)) add("wait", box(clip(view, at.placed), middle - 3, clip(view, until), 6));
    if (at.bound === null && attempts.ended[row] !== null && within(view, until, until)) add(`bar c:${cause}`, box(until - 4, top, until, height));
    for (const moment of attempts.moves[row] ?? []) {
      const x = (moment - view.from) * view.scale;
      if (within(view, x, x)) add("tick", `M${n1(x)} ${n1(middle - 6)}V${n1(middle + 6)}`);
    }
  }
  if (at.bound !== null) {
    const from = clip(view, at.bound);
    const to = Math.max(clip(view, at.ended), from + NEAR);
    if (within(view, at.bound, at.ended)) {
      const low = attempts.kept_low[row];
      const high = attempts.kept_high[row];
      const part = (share) => clip(view, at.bound + (at.ended - at.bound) * share);
      if (low === null || low === 1) add(`bar c:${cause}`, box(from, top, to, height));
      else {
        if (low > 0) add(`bar c:${cause}`, box(from, top, part(low), height));
        if (high > low) add(`unsure c:${cause}`, box(part(low), top, part(high), height));
        if (high < 1) add(`bar c:${cause}`, box(part(high), top, to, height));
        if (high < 1) add("wasted", box(part(high), top, to, height));
      }
      if (to - from > 6) add(attempts.word("capacity", row) === "spot" ? "outline spot" : "outline", box(from + 0.5, top + 0.5, to - 0.5, height - 1));
      if ((cause === "interrupted" || cause === "lost") && at.ended <= view.width + 4 && to - from > 8) add("notch", `M${n1(to + 0.5)} ${n1(top + height * 0.2)}L${n1(to - 5)} ${n1(middle)}L${n1(to + 0.5)} ${n1(top + height * 0.8)}Z`);
      if (height >= 12 && to - from >= 18 && cause !== "running") letters.push({ x: Math.max(0, from) + 5, cause, isPlain: low !== null && part(low) - from < 16 });
    }
  }
  const noticed = attempts.noticed[row];
  if (noticed !== null) {
    const x = (noticed - view.from) * view.scale;
    const until = attempts.goes[row] === null ? x : (attempts.goes[row] - view.from) * view.scale;
    if (within(view, x, until)) {
      add("notice", `M${n1(x - 4)} 0H${n1(x + 4)}L${n1(x)} 7Z`);
      if (until > x + 1) add("notice", box(clip(view, x), 0, clip(view, until), 2.5));
    }
  }
  if (at.due !== null && at.due > at.ended + 1 && by === "task" && within(view, at.ended, at.due)) {
    add("backoff", `M${n1(clip(view, at.ended + 2))} ${n1(middle)}H${n1(clip(view, at.due))}`);
    if (at.due - at.ended > 44) labels.push({ x: (at.ended + at.due) / 2, text: duration(attempts.due[row] - attempts.ended[row]), on: false });
  }
}

function drawNode(nodes, row, view, now, add) {
  const x = (at) => (at - view.from) * view.scale;
  const booted = x(nodes.booted[row] ?? nodes.ready[row] ?? 0);
  const gone = nodes.gone[row] === null ? x(now) : x(nodes.gone[row]);
  const ready = nodes.ready[row] === null ? gone : x(nodes.ready[row]);
  if (!within(view, booted, gone)) return;
  if (ready > booted + 1) add("boot", box(clip(view, booted), 7, clip(view, ready), 10));
  if (gone > ready) add("idle", box(clip(view, ready), 2, clip(view, gone), 20));
  if (nodes.noticed[row] !== null) {
    const at = x(nodes.noticed[row]);
    add("notice", `M${n1(at - 4)} 0H${n1(at + 4)}L${n1(at)} 7Z`);
    if (gone > at + 1) add("notice", box(clip(view, at), 0, clip(view, gone), 2.5));
  }
  if (nodes.gone[row] !== null && within(view, gone, gone)) add("gone", `M${n1(gone)} 2V22`);
}

// How many attempts run at once, in columns of two pixels, and where nodes were taken.
function drawCounts(lane, attempts, view, now, add) {
  const columns = Math.max(1, Math.ceil(view.width / 2));
  const { running, taken } = countsOf(lane.attempts, attempts, { from: view.from, to: view.from + view.width / view.scale, columns }, now);
  const most = Math.max(1, ...running);
  let drawing = `M0 22`;
  running.forEach((number, column) => (drawing += `V${n1(22 - (17 * number) / most)}H${column * 2 + 2}`));
  add(lane.capacity === "spot" ? "area spot" : "area", `${drawing}V22Z`);
  taken.forEach((number, column) => number && add("taken", `M${column * 2 + 1} 0V4`));
}

// How many of some attempts run in each column of a window, and how many were interrupted or lost in it.
export function countsOf(rows, attempts, { from, to, columns }, now) {
  const change = new Int32Array(columns + 1);
  const taken = new Int32Array(columns);
  const scale = columns / (to - from);
  const column = (at) => Math.floor((at - from) * scale);
  for (const row of rows) {
    const bound = attempts.bound[row];
    if (bound === null) continue;
    const ended = attempts.ended[row] ?? now;
    const first = column(bound);
    const last = column(ended);
    if (last < 0 || (last === 0 && first < 0) || first >= columns) continue;
    change[Math.max(0, first)] += 1;
    change[Math.min(columns, Math.max(last, first + 1))] -= 1;
    const cause = attempts.ended[row] === null ? "" : attempts.word("cause", row);
    if ((cause === "interrupted" || cause === "lost") && last < columns) taken[last] += 1;
  }
  const running = new Int32Array(columns);
  for (let index = 0, sum = 0; index < columns; index++) running[index] = sum += change[index];
  return { running, taken };
}

export function ticksOf(view) {
  const wanted = (view.width > 500 ? 90 : 60) / view.scale;
  const step = clockStep(wanted);
  const ticks = [];
  for (let number = Math.ceil(view.from / step - 1e-9); ticks.length < 100; number++) {
    const at = number * step;
    if ((at - view.from) * view.scale > view.width) break;
    ticks.push({ at, x: n1((at - view.from) * view.scale), text: tick(at) });
  }
  return ticks;
}

// -- sentences

const keptText = (low, high, cause) => {
  if (low === null || cause === "succeeded") return "";
  if (high === 0) return ", kept nothing of it";
  if (low === 1) return ", kept all of it";
  if (percent(low) === percent(high)) return `, kept ${percent(low)} of it`;
  return `, kept ${percent(low)} to ${percent(high)} of it`;
};

// An attempt as a sentence. `why`: the reason of its end, where it is known by now.
export function attemptSentence({ tasks, attempts }, row, now, why = "") {
  const cause = causeOf(attempts, row);
  const node = attempts.word("node", row);
  const capacity = attempts.word("capacity", row);
  const task = attempts.task[row];
  const name = `${tasks.path[task]} attempt ${attempts.number[row]}`;
  const bound = attempts.bound[row];
  const ended = attempts.ended[row];
  const placed = attempts.placed[row];
  const place = node && bound !== null ? ` on ${node}${capacity ? ` (${capacity})` : ""}` : "";
  let text;
  if (bound === null && ended === null) {
    const waits = tasks.waits[task];
    text = `${name}, since ${offset(placed)}: ${waits || "waits for a node"}`;
  } else if (ended === null) text = `${name}${place} runs for ${duration(now - bound)}`;
  else {
    text = `${name}${place} ${causeText(cause === "pending" ? "" : cause) || "ended"}${why ? `: ${why}` : ""}`;
    if (bound !== null) text += `, ran ${duration(ended - bound)}${keptText(attempts.kept_low[row], attempts.kept_high[row], cause)}`;
  }
  if (bound !== null && placed !== null && bound - placed >= 0.1) text += `, waited ${duration(bound - placed)} for a node`;
  if (attempts.moves[row]?.length) text += `, moved on ${plural(attempts.moves[row].length, "time")} while it waited`;
  if (attempts.noticed[row] !== null) text += `, had notice at ${offset(attempts.noticed[row])}${attempts.goes[row] === null ? "" : `, ${duration(attempts.goes[row] - attempts.noticed[row])} before the node ${ended === null ? "goes" : "was to go"}`}`;
  if (attempts.due[row] !== null && ended !== null) text += `, next attempt after ${duration(attempts.due[row] - ended)}`;
  return text;
}

export function laneSentence({ tasks, attempts, nodes }, lane) {
  const has = plural(lane.attempts.length, "attempt");
  if (lane.by === "task") {
    const why = tasks.why[lane.task] || tasks.waits[lane.task];
    return `${lane.title}: ${tasks.word("status", lane.task)}, ${has}${why ? `: ${why}` : ""}${lane.note ? `, ${lane.note}` : ""}`;
  }
  if (lane.by === "node") return [...lane.nodes.map((row) => nodeSentence(nodes, row)), has].join(", ");
  const taken = lane.attempts.filter((row) => ["interrupted", "lost"].includes(attempts.word("cause", row))).length;
  return `${lane.title}${lane.capacity ? ` (${lane.capacity})` : ""}: ${plural(lane.nodes.length, "node")}, ${has}, ${count(taken)} interrupted`;
}

export function nodeSentence(nodes, row) {
  const capacity = nodes.word("capacity", row);
  const booted = nodes.booted[row];
  const ready = nodes.ready[row];
  let text = `${nodes.name[row]}${capacity ? ` (${capacity})` : ""} ${nodes.word("state", row)}`;
  if (ready !== null) text += `, ready at ${offset(ready)}${booted === null ? "" : ` after ${duration(ready - booted)}`}`;
  else if (booted !== null) text += ` since ${offset(booted)}`;
  if (nodes.noticed[row] !== null) text += `, notice at ${offset(nodes.noticed[row])}`;
  if (nodes.gone[row] !== null) text += `, gone at ${offset(nodes.gone[row])}`;
  return nodes.why[row] ? `${text}: ${nodes.why[row]}` : text;
}
