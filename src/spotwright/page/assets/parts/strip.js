// The whole run at a glance: how many attempts run, on spot and on demand, and where some were interrupted.
// Dragging selects the window of the lanes; so do the two handles, with the mouse and with the arrow keys.
import { html } from "htm/preact";
import { useMemo, useRef } from "preact/hooks";
import { count, offset, plural } from "../format.js";
import { countsOf } from "./marks.js";

const COLUMNS = 800;
const HEIGHT = 40;

function overview(attempts, extent, now) {
  const rows = { spot: [], other: [] };
  for (let row = 0; row < attempts.rows; row++) rows[attempts.word("capacity", row) === "spot" ? "spot" : "other"].push(row);
  const place = { from: 0, to: extent, columns: COLUMNS };
  const spot = countsOf(rows.spot, attempts, place, now);
  const other = countsOf(rows.other, attempts, place, now);
  let most = 1;
  let interrupted = 0;
  for (let column = 0; column < COLUMNS; column++) {
    most = Math.max(most, spot.running[column] + other.running[column]);
    interrupted += spot.taken[column] + other.taken[column];
  }
  const y = (number) => Math.round((HEIGHT - (number / most) * (HEIGHT - 8)) * 10) / 10;
  let under = `M0 ${HEIGHT}`;
  let over = `M0 ${HEIGHT}`;
  let ticks = "";
  for (let column = 0; column < COLUMNS; column++) {
    under += `V${y(other.running[column])}H${column + 1}`;
    over += `V${y(other.running[column] + spot.running[column])}H${column + 1}`;
    if (spot.taken[column] + other.taken[column]) ticks += `M${column + 0.5} 0V5`;
  }
  return { under: `${under}V${HEIGHT}Z`, over: `${over}V${HEIGHT}Z`, ticks, most, interrupted };
}

// `window`: {from, to} in seconds; `select({from, to})` changes it.
export function Strip({ attempts, version, extent, now, window, select }) {
  const box = useRef(null);
  const drag = useRef(null);
  const drawn = useMemo(() => overview(attempts, extent, now), [attempts, version, Math.round((extent / COLUMNS) * 1000), Math.floor((now / extent) * COLUMNS)]);
  const x = (at) => (Math.max(0, Math.min(extent, at)) / extent) * COLUMNS;

  const at = (event) => {
    const place = box.current.getBoundingClientRect();
    return Math.max(0, Math.min(1, (event.clientX - place.left) / place.width)) * extent;
  };
  function down(event) {
    if (event.button) return;
    const from = at(event);
    const near = (6 / box.current.clientWidth) * extent;
    const side = Math.abs(from - window.from) < near ? "from" : Math.abs(from - window.to) < near ? "to" : "";
    const isInside = !side && from > window.from && from < window.to && window.to - window.from < extent * 0.98;
    drag.current = { from, side, isInside, window };
    box.current.setPointerCapture(event.pointerId);
    event.preventDefault();
  }
  function move(event) {
    const start = drag.current;
    if (!start) return;
    const to = at(event);
    if (start.side) select(ordered({ ...start.window, [start.side]: to }));
    else if (start.isInside) {
      const by = Math.max(-start.window.from, Math.min(extent - start.window.to, to - start.from));
      select({ from: start.window.from + by, to: start.window.to + by });
    } else if (Math.abs(to - start.from) > extent / 400) select(ordered({ from: start.from, to }));
  }
  function up() {
    drag.current = null;
  }
  const key = (side) => (event) => {
    const width = window.to - window.from;
    const step = (event.shiftKey ? 0.1 : 0.01) * extent;
    const by = { ArrowLeft: -step, ArrowDown: -step, ArrowRight: step, ArrowUp: step, PageDown: -width, PageUp: width, Home: -extent, End: extent }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    const value = Math.max(0, Math.min(extent, window[side] + by));
    const least = extent / 1000;
    select(side === "from" ? { from: Math.min(value, window.to - least), to: window.to } : { from: window.from, to: Math.max(value, window.from + least) });
  };
  const handle = (side, label) => html`<div key=${side} class=${`handle ${side}`} role="slider" tabindex="0" aria-label=${label} aria-valuemin="0" aria-valuemax=${Math.round(extent)}
    aria-valuenow=${Math.round(Math.max(0, Math.min(extent, window[side])))} aria-valuetext=${offset(window[side])} onKeyDown=${key(side)}
    style=${{ left: `${(x(window[side]) / COLUMNS) * 100}%` }}></div>`;
  return html`<div class="strip" role="group" aria-label=${`The whole run: at most ${plural(drawn.most, "attempt")} at once, ${count(drawn.interrupted)} interrupted. The window is from ${offset(window.from)} to ${offset(window.to)}.`}
    ref=${box} onPointerDown=${down} onPointerMove=${move} onPointerUp=${up} onPointerCancel=${up}>
    <svg viewBox=${`0 0 ${COLUMNS} ${HEIGHT}`} preserveAspectRatio="none" aria-hidden="true">
      <path class="m-area spot" d=${drawn.over} /><path class="m-area" d=${drawn.under} /><path class="m-taken" d=${drawn.ticks} />
      <path class="outside" d=${`M0 0H${x(window.from)}V${HEIGHT}H0ZM${x(window.to)} 0H${COLUMNS}V${HEIGHT}H${x(window.to)}Z`} />
    </svg>
    ${handle("from", "Beginning of the window")}${handle("to", "End of the window")}
  </div>`;
}

const ordered = ({ from, to }) => (from <= to ? { from, to } : { from: to, to: from });
