// Lanes of marks over time. Only the lanes that the window shows are in the document, each with one element for a kind of mark.
// Keyboard: up and down change lanes, left and right go from mark to mark, Home and End to the first and last one.
import { html } from "htm/preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { causeLetter, classOf } from "../words.js";
import { LANE, causeOf, shapesOf, spanOf, ticksOf } from "./marks.js";
import { usePrinted, useSize } from "./window.js";

const SPARE = 8; // lanes above and below the window
const MOST = 330_000; // lanes: browsers place nothing exactly beyond eight million pixels
const NARROW = 560; // pixels: below, a lane has its label above it
const PRINTED = { lanes: 500, width: 500, label: 150 }; // fits paper of either format
const LEAST = 100; // pixels of a plot

// `lanes` of parts/marks.js; `window` {from, to}; `sentence(lane, row)` and `laneSentence(lane)`; `address(lane, row)`; `onKey(event)`
// takes what moves no mark; `seen(lane, row)`: the mark that has the focus or the pointer.
export function Lanes({ lanes, run, window: shown, now, marks, bands, sentence, laneSentence, address, open, onKey, pan, seen, selected, version, why }) {
  const box = useRef(null);
  const [top, setTop] = useState(0);
  const size = useSize(box, { width: 900, height: 500 });
  const [current, setCurrent] = useState({ lane: 0, mark: -1 });
  const [pointed, setPointed] = useState(null);
  const [hasFocus, setHasFocus] = useState(false);
  const isPrinted = usePrinted();
  const wantsFocus = useRef(false);
  const cache = useRef({ token: "", rows: new Map() });
  const attempts = run.attempts.value;
  const nodes = run.nodes.value;
  const tasks = run.tasks.value;

  const isNarrow = !isPrinted && size.width < NARROW;
  const height = isNarrow ? LANE + 18 : LANE;
  const label = isPrinted ? PRINTED.label : isNarrow ? 0 : Math.round(Math.min(260, size.width * 0.25));
  const width = isPrinted ? PRINTED.width : Math.max(LEAST, size.width - label);
  const view = { from: shown.from, to: shown.to, width, scale: width / (shown.to - shown.from) };
  const number = Math.min(lanes.length, MOST);
  const first = isPrinted ? 0 : Math.max(0, Math.floor(top / height) - SPARE);
  const last = isPrinted ? Math.min(number, PRINTED.lanes) : Math.min(number, Math.ceil((top + size.height) / height) + SPARE);
  const at = Math.min(current.lane, number - 1);
  const lane = lanes[at];

  useEffect(() => {
    if (!selected) return;
    const index = lanes.findIndex((each) => each.key === selected.lane);
    if (index < 0) return;
    const mark = lanes[index].attempts.findIndex((row) => attempts.number[row] === selected.number && (lanes[index].by === "task" || tasks.path[attempts.task[row]] === selected.task));
    setCurrent({ lane: index, mark });
    reveal(index);
  }, [selected?.lane, selected?.number]);

  useLayoutEffect(() => {
    // not an effect after the paint: one that is left from before would give the focus to the mark that goes
    if (!wantsFocus.current) return;
    wantsFocus.current = false;
    box.current.querySelector("a.mark")?.focus({ preventScroll: true });
    box.current.scrollIntoView({ block: "nearest" });
  });

  function reveal(index) {
    const element = box.current;
    const from = index * height;
    if (from < element.scrollTop) element.scrollTop = from;
    else if (from + height > element.scrollTop + element.clientHeight) element.scrollTop = from + height - element.clientHeight;
    setTop(element.scrollTop);
  }

  function go(index, mark) {
    const to = Math.max(0, Math.min(number - 1, index));
    setCurrent({ lane: to, mark });
    setPointed(null);
    wantsFocus.current = true;
    reveal(to);
    const row = lanes[to]?.attempts[mark];
    if (row === undefined) return;
    const span = spanOf(attempts, row, view, now);
    const from = span.bound ?? span.placed;
    if (from < 0 || from > width) pan(view.from + (from - width / 3) / view.scale);
  }

  const middle = (row) => {
    const span = spanOf(attempts, row, view, now);
    return ((span.bound ?? span.placed) + span.ended) / 2;
  };

  // The mark of another lane that is nearest in time.
  function nearest(to, from) {
    const row = lane?.attempts[current.mark];
    if (row === undefined || !lanes[to]?.attempts.length) return from;
    const wanted = middle(row);
    let best = 0;
    lanes[to].attempts.forEach((each, index) => {
      if (Math.abs(middle(each) - wanted) < Math.abs(middle(lanes[to].attempts[best]) - wanted)) best = index;
    });
    return best;
  }

  // The next mark of this lane in a direction; marks nearer than two pixels are one.
  function next(step) {
    const here = lane.attempts[current.mark];
    let mark = current.mark + step;
    if (here !== undefined) {
      const from = spanOf(attempts, here, view, now);
      while (lane.by !== "task" && mark > 0 && mark < lane.attempts.length - 1) {
        const other = spanOf(attempts, lane.attempts[mark], view, now);
        if (Math.abs((other.bound ?? other.placed) - (from.bound ?? from.placed)) >= 2) break;
        mark += step;
      }
    }
    return Math.max(-1, Math.min(lane.attempts.length - 1, mark));
  }

  function pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !lane) return;
    const page = Math.max(1, Math.floor(size.height / height) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page };
    const marksOf = { ArrowRight: () => next(1), ArrowLeft: () => next(-1), Home: () => -1, End: () => lane.attempts.length - 1 };
    if (event.shiftKey && (event.key === "ArrowLeft" || event.key === "ArrowRight")) {
      pan(view.from + ((event.key === "ArrowLeft" ? -0.2 : 0.2) * width) / view.scale);
    } else if (event.key in steps) {
      const to = Math.max(0, Math.min(number - 1, at + steps[event.key]));
      go(to, nearest(to, -1));
    } else if (event.key in marksOf) go(at, marksOf[event.key]());
    else if (event.key === "Enter" && open) open(lane, lane.attempts[current.mark]);
    else if (event.key === "Escape" && pointed) setPointed(null);
    else if (!onKey(event)) return;
    event.preventDefault();
  }

  // The lane and attempt under the pointer.
  function under(event) {
    const place = box.current.getBoundingClientRect();
    const y = event.clientY - place.top + box.current.scrollTop;
    const index = Math.floor(y / height);
    const found = lanes[index];
    const x = event.clientX - place.left - label;
    if (!found || index >= number || x < 0) return null;
    const inside = y - index * height - (height - LANE);
    let row;
    let best = 6;
    for (const each of found.attempts) {
      if (found.slot && found.rows <= 4 && inside >= 4 && inside <= 20 && Math.floor(((inside - 4) / 16) * found.rows) !== found.slot.get(each)) continue;
      const span = spanOf(attempts, each, view, now);
      const from = found.by === "task" || span.bound === null ? span.placed : span.bound;
      const until = Math.max(span.ended, found.by === "task" ? (span.due ?? 0) : 0);
      const away = x < from ? from - x : x > until ? x - until : 0;
      if (away < best) [best, row] = [away, each];
    }
    return { lane: index, row, x: event.clientX - place.left, y: index * height + height - box.current.scrollTop };
  }

  function over(event) {
    if (event.pointerType === "touch") return;
    const found = under(event);
    setPointed(found);
    if (found?.row !== undefined) seen(found.row);
  }

  const rowOf = current.mark >= 0 ? lane?.attempts[current.mark] : undefined;
  useEffect(() => {
    if (hasFocus && rowOf !== undefined) seen(rowOf);
  }, [hasFocus, rowOf]);

  // Lanes are made again only when something that they show has changed.
  const token = `${version}|${view.from}|${view.to}|${width}|${label}|${height}|${now}|${lanes.length}`;
  if (cache.current.token !== token || cache.current.lanes !== lanes) cache.current = { token, lanes, rows: new Map() };
  const body = [];
  for (let index = first; index < last; index++) {
    let row = index === at ? null : cache.current.rows.get(index);
    if (!row) {
      row = laneRow(index);
      if (index !== at) cache.current.rows.set(index, row);
    }
    body.push(row);
  }

  function laneRow(index) {
    const each = lanes[index];
    const isCurrent = index === at;
    const { paths, letters, labels } = shapesOf(each, attempts, nodes, view, now);
    const target = address(each, each.attempts.at(-1));
    return html`<div role="row" key=${each.key} aria-rowindex=${index + 1} class=${`lane${isCurrent && hasFocus ? " current" : ""}`}
      style=${isPrinted ? {} : { transform: `translateY(${index * height}px)`, height: `${height}px` }}>
      <div role="rowheader" class="label" title=${each.title} style=${isNarrow ? {} : { width: `${label}px` }}>${target ? html`<a href=${target} tabindex="-1">${each.title}</a>` : each.title}</div>
      <div role="gridcell" class="plot">
        <svg width=${width} height=${LANE} viewBox=${`0 0 ${width} ${LANE}`} aria-hidden="true">
          ${bands.filter((band) => band.kind === "left_out" && each.by === "pool" && band.pool === each.title).map((band) => {
            const x = Math.max(0, (band.from - view.from) * view.scale);
            const until = Math.min(width, ((band.until ?? now) - view.from) * view.scale);
            return until > x && html`<rect class="m-left-out" x=${x} y="0" width=${until - x} height=${LANE} fill="url(#hatch-left-out)" />`;
          })}
          ${paths.map(([name, drawing]) => shape(name, drawing))}
          ${[false, true].map((isPlain) => {
            const some = letters.filter((letter) => letter.isPlain === isPlain);
            return some.length > 0 && html`<text key=${isPlain} class=${isPlain ? "m-letters plain" : "m-letters"} x=${some.map((letter) => letter.x).join(" ")} y="16">${some.map((letter) => causeLetter(letter.cause)).join("")}</text>`;
          })}
          ${labels.map((text) => html`<text key=${text.x} class=${text.on ? "m-letters count" : "m-seconds"} x=${text.x} y=${text.on ? 16 : 10}>${text.text}</text>`)}
        </svg>
        ${isCurrent && focused(each, index)}
      </div>
    </div>`;
  }

  // The one mark that can have the focus: a link with the sentence as its name.
  function focused(each, index) {
    const row = each.attempts[current.mark];
    let place = { left: "0px", width: "100%" };
    if (row !== undefined) {
      const span = spanOf(attempts, row, view, now);
      const from = Math.max(0, Math.min(width - 4, each.by === "task" || span.bound === null ? span.placed : span.bound));
      const until = Math.max(from + 4, Math.min(width, span.ended));
      place = { left: `${from}px`, width: `${until - from}px` };
    }
    const text = row === undefined ? laneSentence(each) : sentence(row);
    return html`<a key=${`${index}.${current.mark}`} class="mark" tabindex="-1" href=${address(each, row) || undefined} role=${address(each, row) ? undefined : "img"} aria-label=${text} style=${place}></a>`;
  }

  let tip = null;
  if (pointed && lanes[pointed.lane]) {
    const each = lanes[pointed.lane];
    tip = { text: pointed.row === undefined ? laneSentence(each) : sentence(pointed.row), x: pointed.x, y: pointed.y };
  } else if (hasFocus && lane) {
    const span = rowOf === undefined ? null : spanOf(attempts, rowOf, view, now);
    const from = span ? Math.max(0, Math.min(width - 20, span.bound ?? span.placed)) : 0;
    tip = { text: rowOf === undefined ? laneSentence(lane) : sentence(rowOf), x: label + from, y: (at + 1) * height - top };
  }
  const isLow = tip && tip.y > size.height - 90;
  const left = tip && Math.max(4, Math.min(tip.x, size.width - Math.min(420, size.width - 8) - 4));

  return html`<div class=${`lanes${isNarrow ? " narrow" : ""}`} data-why=${why}>
    <${Axis} view=${view} label=${label} now=${now} marks=${marks} isDriven=${run.driven.value} />
    <div class="field">
      <${Ground} view=${view} label=${label} now=${now} marks=${marks} bands=${bands} isDriven=${run.driven.value} />
      <div class="scroller" ref=${box} role="grid" aria-label="Lanes" aria-rowcount=${number} aria-colcount="2" tabindex=${hasFocus ? -1 : 0}
        onScroll=${(event) => (setTop(event.currentTarget.scrollTop), setPointed(null))}
        onKeyDown=${pressed}
        onFocusIn=${(event) => {
          setHasFocus(true);
          if (event.target === box.current) {
            wantsFocus.current = true;
            reveal(at);
          }
        }}
        onFocusOut=${(event) => !event.currentTarget.contains(event.relatedTarget) && setHasFocus(false)}
        onPointerMove=${over} onPointerLeave=${() => setPointed(null)}
        onClick=${(event) => {
          if (event.target.closest(".label a")) return;
          const found = under(event);
          if (!found) return;
          event.preventDefault();
          event.stopPropagation();
          if (found.row === undefined) go(found.lane, -1);
          else open(lanes[found.lane], found.row);
        }}>
        <div class="space" role="presentation" style=${isPrinted ? {} : { height: `${number * height}px` }}>${body}</div>
      </div>
      ${tip && !isPrinted && html`<div class="tip" aria-hidden="true" style=${{ left: `${left}px`, [isLow ? "bottom" : "top"]: `${isLow ? size.height - tip.y + height + 2 : tip.y + 2}px` }}>${tip.text}</div>`}
    </div>
    ${isPrinted && lanes.length > PRINTED.lanes && html`<p class="note">${lanes.length - PRINTED.lanes} more lanes are left out.</p>`}
  </div>`;
}

// A path of one kind of mark. Hatched ones are drawn over their colour with the lines of a pattern.
function shape(name, drawing) {
  const [kind, cause] = name.split(" c:");
  const pattern = { wait: "hatch", boot: "hatch", wasted: "hatch-back" }[kind];
  if (pattern) return html`<path key=${name} class=${`m-${kind}`} d=${drawing} fill=${`url(#${pattern})`} />`;
  return html`<path key=${name} class=${cause ? `m-${kind} ${classOf("c", cause)}` : `m-${kind}`} d=${drawing} />`;
}

// The patterns of hatched marks, once for the document.
export const Patterns = () => html`<svg class="patterns" width="0" height="0" aria-hidden="true"><defs>
  <pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path class="line-pending" d="M1 0V5" /></pattern>
  <pattern id="hatch-back" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)"><path class="line-back" d="M1.25 0V5" /></pattern>
  <pattern id="hatch-left-out" width="8" height="8" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)"><path class="line-left-out" d="M1 0V8" /></pattern>
</defs></svg>`;

// Lines that go through all lanes: what they are called, and when.
export function linesOf(marks, now, isDriven) {
  const lines = [
    { kind: "now", at: isDriven ? now : null, text: "now" },
    { kind: "last-moment", at: marks?.last_moment, text: "last moment" },
    { kind: "deadline", at: marks?.deadline, text: "deadline" },
  ];
  return lines.filter((line) => line.at !== null && line.at !== undefined);
}

function Axis({ view, label, now, marks, isDriven }) {
  const inside = linesOf(marks, now, isDriven).filter((line) => line.at >= view.from && line.at <= view.to);
  return html`<div class="time-axis" aria-hidden="true"><svg width=${view.width} height="30" viewBox=${`0 0 ${view.width} 30`} style=${{ marginLeft: `${label}px` }}>
    ${ticksOf(view).map((tick) => html`<g key=${tick.at}><path d=${`M${tick.x} 24V30`} /><text x=${tick.x} y="22" text-anchor=${tick.x < 20 ? "start" : "middle"}>${tick.x > view.width - 22 ? "" : tick.text}</text></g>`)}
    ${inside.map((line) => {
      const x = (line.at - view.from) * view.scale;
      return html`<text key=${line.kind} class=${`line-name ${line.kind}`} x=${x} y="9" text-anchor=${x > view.width - 80 ? "end" : "start"}>${line.text}</text>`;
    })}
  </svg></div>`;
}

// What lies behind all lanes: grid lines, the times in which the run had no engine, the planned end, now and the deadline.
function Ground({ view, label, now, marks, bands, isDriven }) {
  const x = (at) => Math.max(-2, Math.min(view.width + 2, (at - view.from) * view.scale));
  const span = (from, until) => ({ x: x(from), width: Math.max(0, x(until) - x(from)) });
  return html`<svg class="ground" width=${view.width} aria-hidden="true" style=${{ left: `${label}px` }}>
    ${bands.filter((band) => band.kind === "undriven").map((band) => html`<rect key=${band.from} class="m-undriven" y="0" height="100%" ...${span(band.from, band.until ?? now)} />`)}
    ${marks?.planned && html`<rect class="m-planned" y="0" height="100%" ...${span(marks.planned[0], marks.planned[1])} />`}
    ${ticksOf(view).map((tick) => html`<line key=${tick.at} class="tick-line" x1=${tick.x} x2=${tick.x} y1="0" y2="100%" />`)}
    ${linesOf(marks, now, isDriven).filter((line) => line.at >= view.from && line.at <= view.to).map((line) => html`<line key=${line.kind} class=${`through ${line.kind}`} x1=${x(line.at)} x2=${x(line.at)} y1="0" y2="100%" />`)}
  </svg>`;
}

// The meaning of the marks: only those that this run can have.
export function Legend({ causes, has }) {
  const sample = (name, text, content, when = true) => when && html`<li key=${name}><svg width="28" height=${LANE} viewBox=${`0 0 28 ${LANE}`} aria-hidden="true">${content}</svg>${text}</li>`;
  return html`<ul class="timeline-legend" aria-label="Meaning of the marks">
    ${causes.map((cause) => sample(cause, cause, html`<path class=${`m-bar ${classOf("c", cause)}`} d="M2 4H26V20H2Z" />${cause !== "running" && html`<text class="m-letters" x="10" y="16">${causeLetter(cause)}</text>`}`))}
    ${sample("spot", "on spot", html`<path class="m-outline spot thick" d="M2.5 4.5H25.5V19.5H2.5Z" />`)}
    ${sample("on-demand", "on demand", html`<path class="m-outline thick" d="M2.5 4.5H25.5V19.5H2.5Z" />`)}
    ${sample("wasted", "work that was lost", html`<path class="m-bar c-interrupted" d="M2 4H26V20H2Z" /><path class="m-wasted" fill="url(#hatch-back)" d="M2 4H26V20H2Z" />`)}
    ${sample("unsure", "unknown whether kept", html`<path class="m-unsure c-interrupted" d="M2 4H26V20H2Z" />`)}
    ${sample("wait", "waits for a node", html`<path class="m-wait" fill="url(#hatch)" d="M2 9H26V15H2Z" /><path class="m-tick" d="M14 6V18" />`)}
    ${sample("backoff", "backoff", html`<path class="m-backoff" d="M2 12H26" />`)}
    ${sample("notice", "notice, until the node goes", html`<path class="m-notice" d="M4 0H12L8 7ZM8 0H26V2.5H8Z" />`, has.notice)}
    ${sample("notch", "node reclaimed", html`<path class="m-bar c-interrupted" d="M2 4H26V20H2Z" /><path class="m-notch" d="M26.5 7L21 12L26.5 17Z" />`, has.taken)}
    ${sample("boot", "node boots", html`<path class="m-boot" fill="url(#hatch)" d="M2 7H26V17H2Z" />`, has.nodes)}
    ${sample("idle", "node is there, until it goes", html`<path class="m-idle" d="M2 2H26V22H2Z" /><path class="m-gone" d="M26 2V22" />`, has.nodes)}
    ${sample("area", "how many run at once: on spot", html`<path class="m-area spot" d="M2 22V12H8V6H16V10H22V16H26V22Z" />`)}
    ${sample("area-on-demand", "on demand", html`<path class="m-area" d="M2 22V12H8V6H16V10H22V16H26V22Z" />`)}
    ${sample("taken", "interruptions", html`<path class="m-taken" d="M6 0V5M14 0V5M18 0V5" />`, has.taken)}
    ${sample("left-out", "pool is left out", html`<rect class="m-left-out" x="2" y="0" width="24" height="24" fill="url(#hatch-left-out)" />`, has.left_out)}
    ${sample("undriven", "run without an engine", html`<rect class="m-undriven" x="2" y="0" width="24" height="24" />`, has.undriven)}
    ${sample("planned", "planned end, 10 to 90%", html`<rect class="m-planned" x="2" y="0" width="24" height="24" />`, has.planned)}
  </ul>`;
}

export { causeOf };
