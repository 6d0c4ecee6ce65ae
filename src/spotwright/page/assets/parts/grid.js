// A table of any length: only the rows that the window shows are in the document. All rows have one height.
// Where the columns have no room beside each other, and on paper, a row folds: its name above, the other cells below with their titles.
// Keyboard: up, down, Page Up, Page Down, Home, End move the current row; Enter opens it.
import { html } from "htm/preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { count } from "../format.js";
import { usePrinted, useSize } from "./window.js";

const SPARE = 6; // rows above and below the window
const PRINTED = 500; // rows on paper
const WIDTHS = { wide: 130, name: 70, long: 96, range: 84, number: 62, moment: 140 }; // pixels that a column needs at least; others 90
const ENOUGH = 1100; // pixels that are enough for any table
const GAP = 12; // pixels between columns
const LINE = 18; // pixels: a line of a folded row
const TALLEST = 8_000_000; // pixels: browsers place nothing exactly far beyond; longer tables scroll by a scaled offset

// `columns`: [{key, title, cell(row), className, sort}]; `rows`: how many; `open(row)`; `label(row)`: a sentence for the row.
export function Grid({ columns, rows, open, address, label, name, sort, onSort, selected = -1, version = 0 }) {
  const box = useRef(null);
  const [top, setTop] = useState(0);
  const { width, height } = useSize(box, { width: 1200, height: 600 });
  const isPrinted = usePrinted();
  const [current, setCurrent] = useState(Math.max(0, selected));
  const wantsFocus = useRef(false);
  const isFolded = isPrinted || width < Math.min(ENOUGH, needed(columns));
  const rowHeight = isFolded ? 32 + linesOf(columns, width) * LINE : 32;
  const whole = rows * rowHeight;
  const shown = Math.min(whole, TALLEST);
  const scale = whole > shown ? (whole - height) / Math.max(1, shown - height) : 1;
  const first = isPrinted ? 0 : Math.max(0, Math.floor((top * scale) / rowHeight) - SPARE);
  const last = Math.min(rows, isPrinted ? PRINTED : Math.ceil((top * scale + height) / rowHeight) + SPARE);

  useEffect(() => {
    if (selected >= 0) reveal(selected);
  }, [selected]);

  useLayoutEffect(() => {
    if (!wantsFocus.current) return;
    wantsFocus.current = false;
    box.current.querySelector(`[data-row="${current}"]`)?.focus({ preventScroll: true });
  });

  function reveal(row) {
    const element = box.current;
    const from = row * rowHeight;
    const at = element.scrollTop * scale;
    if (from < at) element.scrollTop = from / scale;
    else if (from + rowHeight > at + element.clientHeight) element.scrollTop = (from + rowHeight - element.clientHeight) / scale;
    setTop(element.scrollTop);
  }

  function move(row) {
    const next = Math.max(0, Math.min(rows - 1, row));
    setCurrent(next);
    wantsFocus.current = true;
    reveal(next);
  }

  function key(event) {
    const page = Math.max(1, Math.floor(height / rowHeight) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -rows, End: rows };
    if (event.key in steps && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      move(current + steps[event.key]);
    } else if (event.key === "Enter" && open && event.target.dataset?.row !== undefined) {
      event.preventDefault();
      open(current);
    }
  }

  const body = [];
  for (let row = first; row < last; row++) {
    const place = whole > shown ? top + row * rowHeight - top * scale : row * rowHeight;
    body.push(html`<div
      key=${row} role="row" aria-rowindex=${row + 2} aria-selected=${row === selected} data-row=${row}
      tabindex=${row === Math.min(current, rows - 1) ? 0 : -1} aria-label=${label?.(row)}
      class=${`row${row === selected ? " selected" : ""}${open ? " opens" : ""}`}
      style=${isPrinted ? {} : { transform: `translateY(${place}px)`, height: `${rowHeight}px` }}
      onFocus=${() => row !== current && setCurrent(row)}
      onClick=${(event) => open && !event.target.closest("a, button") && open(row)}
    >${columns.map((column, index) => html`<div role="gridcell" key=${column.key} class=${`cell ${column.className ?? ""}`} data-title=${isFolded && index > 0 ? column.title : undefined}>
        ${index === 0 && address ? html`<a href=${address(row)} tabindex="-1">${column.cell(row)}</a>` : column.cell(row)}
      </div>`)}</div>`);
  }
  return html`${isFolded && onSort && html`<${Order} columns=${columns} sort=${sort} onSort=${onSort} />`}
  <div class=${`grid grid-${name}${isFolded ? " folded" : ""}`} role="grid" aria-label=${name} aria-rowcount=${rows + 1} aria-colcount=${columns.length} onKeyDown=${key}>
    <div class="heading" role="row" aria-rowindex="1">${columns.map(
      (column) => html`<div role="columnheader" key=${column.key} class=${`cell ${column.className ?? ""}`}
        aria-sort=${sort?.key === column.key ? (sort.down ? "descending" : "ascending") : undefined}>
        ${column.sort && onSort
          ? html`<button type="button" class="sort" onClick=${() => onSort(column.key)}>${column.title}${sort?.key === column.key ? (sort.down ? " ↓" : " ↑") : ""}</button>`
          : column.title}
      </div>`,
    )}</div>
    <div class="rows" role="rowgroup" ref=${box} onScroll=${(event) => setTop(event.currentTarget.scrollTop)} data-version=${version}>
      <div class="space" role="presentation" style=${isPrinted ? {} : { height: `${shown}px` }}>${body}</div>
    </div>
  </div>
  ${isPrinted && rows > PRINTED && html`<p class="note">${count(rows - PRINTED)} more rows are left out.</p>`}`;
}

// The width from which on the columns have room beside each other.
const needed = (columns) =>
  columns.reduce((sum, { className = "" }) => sum + GAP + (WIDTHS[Object.keys(WIDTHS).find((kind) => className.split(" ").includes(kind))] ?? 90), GAP);

// The lines that a folded row has below its first one: a text has its own, other cells share one.
function linesOf(columns, width) {
  const texts = columns.filter(({ className = "" }, index) => index > 0 && className.includes("wide")).length;
  const ranges = columns.filter(({ className = "" }) => className.includes("range")).length;
  return texts + Math.ceil((columns.length - 2 - texts + ranges / 2) / Math.max(2, Math.floor(width / 170)));
}

// What sorts a folded table, which has no heading.
function Order({ columns, sort, onSort }) {
  const sorted = columns.filter((column) => column.sort);
  const isOwn = sorted.some((column) => column.key === sort.key);
  return html`<div class="filters order">
    <label>Order by <select value=${isOwn ? sort.key : ""} onChange=${(event) => event.currentTarget.value && onSort(event.currentTarget.value)}>
      ${!isOwn && html`<option value="">as listed</option>`}${sorted.map((column) => html`<option key=${column.key} value=${column.key}>${column.title}</option>`)}
    </select></label>
    ${isOwn && html`<button type="button" onClick=${() => onSort(sort.key)}>${sort.down ? "Descending ↓" : "Ascending ↑"}</button>`}
  </div>`;
}
