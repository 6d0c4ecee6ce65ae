// Lines of logs, of any number: only those that the window shows are in the document. What was read is kept for a while.
import { html } from "htm/preact";
import { signal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { get, runPath } from "../api.js";
import { apiAddress } from "../routes.js";
import { bytes, count } from "../format.js";
import { say } from "./common.js";

const ROW = 18; // pixels: one line that is not wrapped
const TALLEST = 8_000_000; // pixels: browsers place nothing exactly far beyond; longer logs scroll by a scaled offset
const AT_ONCE = 400; // lines of one question
const MOST_KEPT = 20_000; // lines
const LOOKS = 500; // milliseconds between looks at a log that grows
const MOST_HITS = 10_000;

// One log, or those of all attempts of a task, in memory. `asked`: task, n, environment as in the address.
export class LogText {
  constructor(run, asked) {
    this.run = run;
    this.asked = asked;
    this.lines = new Map();
    this.asking = new Map(); // first line of a question -> the controller that stops it
    this.total = 0;
    this.ended = false;
    this.leftOut = "";
    this.starts = [];
    this.known = false;
    this.tail = true; // whether the end is shown
    this.rows = 60; // lines that the window shows
    this.error = null;
    this.version = signal(0);
    this.closed = false;
    this.following = false;
  }

  // Read the end, which tells how long the log is; until it has ended, again and again while the window is visible.
  // `least`: milliseconds for which it looks again although it has ended; the server lists new attempts after a second.
  async follow(least = 0) {
    this.until = Date.now() + least;
    if (this.following) return;
    this.following = true;
    while (!this.closed) {
      if (!document.hidden) {
        try {
          const tail = this.tail ? this.rows : 1;
          this.take(await get(runPath(this.run, "log"), { ...this.asked, line: -tail, count: tail }), true);
          this.error = null;
        } catch (error) {
          if (this.closed) return;
          this.error = error;
          this.version.value += 1;
          if (error.kind === "not-found") break;
        }
        if (this.ended && this.known && Date.now() >= this.until) break;
      }
      await new Promise((resolve) => setTimeout(resolve, LOOKS));
    }
    this.following = false;
  }

  // `isTail`: the answer is the end, which alone moves it, so that a window at the end asks once for each look.
  take(answer, isTail = false) {
    const starts = JSON.stringify(answer.logs);
    if (starts !== this.startsText && this.starts.length > 1) this.lines.clear(); // an earlier log has grown: numbers moved
    if (answer.total < this.total) this.lines.clear();
    if (isTail || answer.ended) {
      if (answer.total > this.total) this.lines.delete(this.total - 1); // it may not have been complete
      this.total = answer.total;
    }
    this.total = Math.min(this.total, answer.total);
    this.startsText = starts;
    this.starts = answer.logs;
    this.ended = answer.ended;
    this.leftOut = answer.left_out;
    this.known = true;
    for (const line of answer.lines) this.lines.set(line.n, line);
    for (const key of this.lines.keys()) {
      if (this.lines.size <= MOST_KEPT) break;
      this.lines.delete(key);
    }
    this.version.value += 1;
  }

  // Ask for the lines of a window that are not here. Questions for other places are dropped.
  need(first, last) {
    let missing = first;
    while (missing < last && this.lines.has(missing)) missing++;
    if (missing >= last) return;
    const from = Math.max(0, Math.min(missing, this.total - 1));
    for (const [at, stop] of this.asking) {
      if (from >= at && from < at + AT_ONCE) return;
      stop.abort();
    }
    const stop = new AbortController();
    this.asking.set(from, stop);
    get(runPath(this.run, "log"), { ...this.asked, line: from, count: AT_ONCE }, { signal: stop.signal })
      .then((answer) => this.take(answer))
      .catch((error) => {
        if (error.name === "AbortError" || this.closed) return;
        this.error = error;
        this.version.value += 1;
      })
      .finally(() => this.asking.delete(from));
  }

  close() {
    this.closed = true;
    for (const stop of this.asking.values()) stop.abort();
  }

  get address() {
    return apiAddress(runPath(this.run, "log/raw"), this.asked);
  }
}

// All lines that have a text, found piece by piece. `done` tells whether the whole log was looked at.
async function find(text, q, stop, tell) {
  const hits = [];
  let from = 0;
  while (from !== null && hits.length < MOST_HITS && !stop.signal.aborted) {
    const answer = await get(runPath(text.run, "log/find"), { ...text.asked, q, from: from || "" }, { signal: stop.signal });
    hits.push(...answer.hits);
    from = answer.more;
    tell(hits, from === null);
  }
}

// The styles of a part: names of the server as classes.
const styles = (names) => (names ? names.split(" ").map((name) => `sgr-${name.replace(/[^a-z0-9-]/g, "")}`).join(" ") : undefined);

function marked(text, q) {
  if (!q) return text;
  const lowered = text.toLowerCase();
  if (lowered.length !== text.length) return text; // a letter whose small form is longer
  const found = [];
  let done = 0;
  for (let at = lowered.indexOf(q); at >= 0 && found.length < 200; at = lowered.indexOf(q, done)) {
    found.push(text.slice(done, at), html`<mark>${text.slice(at, at + q.length)}</mark>`);
    done = at + q.length;
  }
  return found.length ? [...found, text.slice(done)] : text;
}

// The box. `line`: the line of the address (from 1), or 0; `onLine(line)` sets it. `heading`: what is above it.
export function Log({ text, line = 0, q = "", wrap = false, follows, lineAddress, onFollow, onLine, onQuery, onWrap, name, tall = true }) {
  const version = text.version.value;
  const box = useRef(null);
  const finder = useRef(null);
  const held = useRef(false); // a finger or the mouse is on the box or its bar
  const layer = useRef(null);
  const place = useRef({ at: 0, set: -1, shown: false }); // `at`: exact pixels from the first line
  const [, draw] = useState(0);
  const [height, setHeight] = useState(400);
  const [hits, setHits] = useState({ lines: [], done: true });
  const redraw = () => draw((number) => number + 1);

  const rows = Math.max(1, Math.ceil(height / ROW));
  const whole = text.total * ROW;
  // Wrapped lines are taller than a row: the place of the end is known once the last ones are drawn, until there are more lines
  // or the window has another height.
  const drawn = place.current.drawn;
  const bottom = wrap && drawn?.total === text.total && drawn.height === height ? drawn.bottom : Infinity;
  const most = Math.max(0, wrap ? Math.min(bottom, whole - ROW) : whole - height);
  const room = most + height;
  const shown = Math.max(height, Math.min(room, TALLEST));
  const scale = room > TALLEST ? most / Math.max(1, shown - height) : 1;
  text.tail = follows;
  text.rows = rows + 10;

  useEffect(() => {
    text.follow();
  }, [text]);

  useLayoutEffect(() => {
    const element = box.current;
    const look = () => setHeight(element.clientHeight || 400);
    look();
    const observer = new ResizeObserver(look);
    observer.observe(element);
    return () => observer.disconnect();
  }, []);

  // Go to a place in pixels from the first line.
  function scroll(at) {
    place.current.at = Math.max(0, Math.min(most, at));
    place.current.isEnd = place.current.at >= most - 1;
    place.current.set = Math.round(place.current.at / scale);
    if (box.current) box.current.scrollTop = place.current.set;
    redraw();
  }
  const end = Infinity;

  // Move by pixels of what is drawn: a wrapped line is as tall as it is drawn.
  function move(step) {
    let at = place.current.at;
    let left = step;
    while (wrap && left) {
      const row = step > 0 ? Math.floor(at / ROW) : Math.ceil(at / ROW) - 1;
      const drawn = layer.current?.querySelector(`[data-line="${row}"]`)?.offsetHeight ?? ROW;
      const room = (step > 0 ? row + 1 - at / ROW : at / ROW - row) * drawn;
      const part = Math.min(Math.abs(left), room);
      at += (Math.sign(step) * part * ROW) / drawn;
      left -= Math.sign(step) * part;
      if (part < 0.01 || at <= 0 || at >= most) break;
    }
    scroll(at + (wrap ? 0 : left));
  }

  useLayoutEffect(() => {
    if (!text.known) return;
    if (follows) scroll(end);
    else if (!place.current.shown && !line) scroll(end);
    place.current.shown = true;
  }, [text.total, follows, height, wrap, text.known, bottom]);

  useLayoutEffect(() => {
    if (place.current.isEnd) scroll(end);
  }, [wrap, height]);

  useLayoutEffect(() => {
    if (text.known && line) {
      place.current.shown = true;
      const at = (line - 1) * ROW;
      if (at < place.current.at || at + 2 * ROW > place.current.at + height || wrap) scroll(at - height / 3);
      else redraw();
    }
  }, [line, text.known]);

  function scrolled(event) {
    const top = event.currentTarget.scrollTop;
    const known = place.current;
    if (Math.abs(top - known.set) < 2) return;
    const step = top - known.set;
    // A wheel moves by pixels; only the bar of a very long log moves by its scale.
    if ((wrap || scale > 1) && Math.abs(step) < 2 * height && top > 0 && top < shown - height - 1) {
      move(step);
      return;
    }
    known.at = Math.min(most, top * scale);
    known.isEnd = known.at >= most - 1;
    known.set = top;
    if (follows && held.current && known.at < most - 2 * ROW) onFollow(false);
    redraw();
  }

  const page = Math.max(1, Math.floor(height / ROW) - 2) * ROW;
  function key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const steps = { ArrowDown: ROW, ArrowUp: -ROW, PageDown: page, PageUp: -page, " ": event.shiftKey ? -page : page, Home: -Infinity, End: Infinity };
    if (!(event.key in steps)) return;
    event.preventDefault();
    const step = steps[event.key];
    if (step < 0 && follows) onFollow(false);
    if (Number.isFinite(step)) move(step);
    else scroll(step);
  }
  function keyAll(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
    if (event.key === "/") {
      event.preventDefault();
      finder.current.focus();
      finder.current.select();
    } else if (event.key === "f" && !text.ended) {
      event.preventDefault();
      onFollow(!follows);
    }
  }
  useEffect(() => {
    if (!tall) return undefined; // beside other things the keys work inside the log alone
    const anywhere = (event) => !event.defaultPrevented && !box.current?.closest(".log").contains(event.target) && keyAll(event);
    document.addEventListener("keydown", anywhere);
    return () => document.removeEventListener("keydown", anywhere);
  });

  const first = Math.max(0, Math.min(Math.floor(place.current.at / ROW) - 2, wrap ? text.total - rows : Infinity));
  const last = Math.min(text.total, first + rows + 4);
  useEffect(() => {
    if (text.known && last > first) text.need(first, last);
  });

  // The hits of the search, and which of them is the current one.
  useEffect(() => {
    const stop = new AbortController();
    setHits({ lines: [], done: !q });
    if (!q) return () => {};
    let started = false;
    const timer = setTimeout(
      () =>
        find(text, q, stop, (lines, done) => {
          setHits({ lines: [...lines], done });
          if (!started && lines.length && !(line && lines.includes(line - 1))) {
            const top = Math.floor(place.current.at / ROW);
            if (place.current.shown && !lines.some((each) => each >= top && each < top + rows)) step(lines, 1, top);
          }
          started ||= lines.length > 0;
        }).catch((error) => {
          if (error.name !== "AbortError") setHits({ lines: [], done: true, error });
        }),
      150,
    );
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [text, q, text.ended]);

  function step(lines, by, from = line - 1) {
    if (!lines.length) return;
    let index = by > 0 ? lines.findIndex((each) => each > from) : lines.findLastIndex((each) => each < from);
    if (index < 0) index = by > 0 ? 0 : lines.length - 1;
    if (follows) onFollow(false);
    onLine(lines[index] + 1);
    say(`line ${lines[index] + 1}, ${index + 1} of ${lines.length}`);
  }
  function findKey(event) {
    if (event.key === "Enter") {
      event.preventDefault();
      step(hits.lines, event.shiftKey ? -1 : 1);
    } else if (event.key === "Escape") {
      onQuery("");
      box.current.focus();
    }
  }
  const current = hits.lines.indexOf(line - 1);
  const found = !q ? "" : hits.error ? hits.error.message : !hits.lines.length ? (hits.done ? "nothing found" : "searching…")
    : `${current >= 0 ? `${count(current + 1)} of ` : ""}${count(hits.lines.length)}${hits.done ? "" : "+"}${current >= 0 ? "" : hits.lines.length === 1 ? " line" : " lines"}`;

  const lowered = q.toLowerCase();
  const inHits = new Set(hits.lines.length < 2000 ? hits.lines : hits.lines.slice(lower(hits.lines, first), lower(hits.lines, last)));
  const headings = new Set(text.asked.n || text.asked.environment ? [] : text.starts.map((each) => each.line));
  const digits = String(Math.max(text.total, 99)).length;
  const body = [];
  for (let row = first; row < last; row++) {
    const known = text.lines.get(row);
    const kind = `${row === line - 1 ? " at" : ""}${inHits.has(row) ? " hit" : ""}${headings.has(row) ? " part" : ""}${known ? "" : " unread"}`;
    body.push(html`<div key=${row} data-line=${row} class=${`line${kind}`}>
      <a class="no" href=${lineAddress(row + 1)} aria-label=${`Line ${row + 1}`} tabindex="-1" onClick=${(event) => pick(event, row + 1)}>${row + 1}</a>
      <span class="words">${known?.parts.map(([words, names], index) => html`<span key=${index} class=${styles(names)}>${marked(words, inHits.has(row) ? lowered : "")}</span>`)}${
        known?.cut ? html`<span class="cut">… cut: this line has ${bytes(known.cut)}; the download has all of it</span>` : null
      }</span>
    </div>`);
  }
  function pick(event, number) {
    event.preventDefault();
    event.stopPropagation();
    if (follows) onFollow(false);
    onLine(number === line ? 0 : number);
  }

  // Wrapped lines are taller than a row: the first one is shifted by its share.
  useLayoutEffect(() => {
    const element = layer.current;
    if (!element) return;
    element.style.setProperty("--digits", digits);
    if (!wrap) {
      element.style.setProperty("transform", `translateY(${Math.round(first * ROW - place.current.at)}px)`);
      return;
    }
    const lines = [...element.children];
    if (last === text.total) {
      let left = height;
      let index = lines.length;
      while (index > 0 && left > 0) left -= lines[--index].offsetHeight;
      const found = (first + index) * ROW + (left < 0 ? (-left * ROW) / lines[index].offsetHeight : 0);
      if (Math.abs(found - bottom) > 0.5) {
        place.current.drawn = { total: text.total, height, bottom: found };
        if (place.current.isEnd || place.current.at > found) place.current.at = found;
        redraw();
      }
    }
    const top = Math.floor(place.current.at / ROW) - first;
    const above = lines.slice(0, top).reduce((sum, each) => sum + each.offsetHeight, 0);
    const part = ((place.current.at / ROW) % 1) * (lines[top]?.offsetHeight ?? ROW);
    element.style.setProperty("transform", `translateY(${-above - part}px)`);
  });

  return html`<section class=${`log${wrap ? " wraps" : ""}${tall ? " tall" : ""}`} aria-label=${name} onKeyDown=${keyAll}>
    <div class="log-bar">
      <form class="log-find" role="search" onSubmit=${(event) => event.preventDefault()}>
        <input type="search" ref=${finder} aria-label="Find in the log" placeholder="Find ( / )" value=${q} onInput=${(event) => onQuery(event.currentTarget.value)} onKeyDown=${findKey} />
        <button type="button" aria-label="Previous hit" disabled=${!hits.lines.length} onClick=${() => step(hits.lines, -1)}>↑</button>
        <button type="button" aria-label="Next hit" disabled=${!hits.lines.length} onClick=${() => step(hits.lines, 1)}>↓</button>
        <span class="note found" role="status">${found}</span>
      </form>
      <label><input type="checkbox" checked=${wrap} onChange=${(event) => onWrap(event.currentTarget.checked)} /> Wrap</label>
      ${!text.ended && text.known && html`<label><input type="checkbox" checked=${follows} onChange=${(event) => onFollow(event.currentTarget.checked)} /> Follow <kbd>f</kbd></label>`}
      <span class="note">${text.known ? `${count(text.total)} ${text.total === 1 ? "line" : "lines"}` : ""}</span>
      <a class="download" href=${text.address} download>Download</a>
    </div>
    ${last - first < text.total && html`<p class="note printed">Lines ${count(first + 1)} to ${count(last)} of ${count(text.total)} are printed here; the download has all.</p>`}
    ${text.leftOut && html`<p class="note">${text.leftOut}</p>`}
    ${text.error && html`<p class="problem" role="alert">${text.error.message}</p>`}
    <div class="log-box" ref=${box} tabindex="0" role="region" aria-label=${`${name}, lines`} onScroll=${scrolled} onKeyDown=${key}
      onWheel=${(event) => event.deltaY < 0 && follows && onFollow(false)} onPointerDown=${() => (held.current = true)} onPointerUp=${() => (held.current = false)}
      onTouchStart=${() => (held.current = true)} onTouchEnd=${() => setTimeout(() => (held.current = false), 1000)} data-version=${version}>
      ${text.known && !text.total && html`<p class="note empty-log">${text.ended ? "It printed nothing." : "Nothing yet."}</p>`}
      <div class="log-space" style=${{ height: `${text.total ? shown : 0}px` }}>
        <div class="log-window" style=${{ height: `${height}px` }}><div class="log-lines" ref=${layer}>${body}</div></div>
      </div>
    </div>
  </section>`;
}

// The index of the first number that is not below another, in a sorted list.
function lower(numbers, than) {
  let from = 0;
  let to = numbers.length;
  while (from < to) {
    const middle = (from + to) >> 1;
    if (numbers[middle] < than) from = middle + 1;
    else to = middle;
  }
  return from;
}
