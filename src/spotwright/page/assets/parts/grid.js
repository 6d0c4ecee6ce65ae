// A table of any length: only the rows that the window shows are in the document. All rows have one height.
// Keyboard: up, down, Page Up, Page Down, Home, End move the current row; Enter opens it.
import { html } from "htm/preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

const SPARE = 6; // rows above and below the window
const TALLEST = 8_000_000; // pixels: browsers place nothing exactly far beyond; longer tables scroll by a scaled offset
const PRINTED = 500; // rows on paper
const NARROW = 720; // pixels: below, a row has its name on one line and the rest on a second one

// `columns`: [{key, title, cell(row), className, sort}]; `rows`: how many; `open(row)`; `label(row)`: a sentence for the row.
export function Grid({ columns, rows, rowHeight: wideHeight = 32, open, address, label, name, sort, onSort, selected = -1, version = 0 }) {
  const box = useRef(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(600);
  const [current, setCurrent] = useState(Math.max(0, selected));
  const [isPrinted, setPrinted] = useState(false);
  const [isNarrow, setNarrow] = useState(false);
  const wantsFocus = useRef(false);
  const rowHeight = isNarrow ? Math.max(52, wideHeight) : wideHeight;
  const whole = rows * rowHeight;
  const shown = Math.min(whole, TALLEST);
  const scale = whole > shown ? (whole - height) / Math.max(1, shown - height) : 1;
  const first = isPrinted ? 0 : Math.max(0, Math.floor((top * scale) / rowHeight) - SPARE);
  const last = isPrinted ? Math.min(rows, PRINTED) : Math.min(rows, Math.ceil((top * scale + height) / rowHeight) + SPARE);

  useLayoutEffect(() => {
    const element = box.current;
    const look = () => {
      setHeight(element.clientHeight || 600);
      setNarrow(element.clientWidth < NARROW);
    };
    look();
    const observer = new ResizeObserver(look);
    observer.observe(element);
    const before = () => setPrinted(true);
    const after = () => setPrinted(false);
    addEventListener("beforeprint", before);
    addEventListener("afterprint", after);
    return () => {
      observer.disconnect();
      removeEventListener("beforeprint", before);
      removeEventListener("afterprint", after);
    };
  }, []);

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
    >${columns.map((column, index) => html`<div role="gridcell" key=${column.key} class=${`cell of-${column.key} ${column.className ?? ""}`} data-title=${isNarrow ? column.title : undefined}>
        ${index === 0 && address ? html`<a href=${address(row)} tabindex="-1">${column.cell(row)}</a>` : column.cell(row)}
      </div>`)}</div>`);
  }
  return html`<div class=${`grid grid-${name}${isNarrow && !isPrinted ? " narrow" : ""}`} role="grid" aria-label=${name} aria-rowcount=${rows + 1} aria-colcount=${columns.length} onKeyDown=${key}>
    <div class="heading" role="row" aria-rowindex="1">${columns.map(
      (column) => html`<div role="columnheader" key=${column.key} class=${`cell of-${column.key} ${column.className ?? ""}`}
        aria-sort=${sort?.key === column.key ? (sort.down ? "descending" : "ascending") : undefined}>
        ${column.sort && onSort
          ? html`<button type="button" class="sort" onClick=${() => onSort(column.key)}>${column.title}${sort?.key === column.key ? (sort.down ? " ↓" : " ↑") : ""}</button>`
          : column.title}
      </div>`,
    )}</div>
    <div class="rows" role="rowgroup" ref=${box} onScroll=${(event) => setTop(event.currentTarget.scrollTop)} data-version=${version}>
      <div class="space" role="presentation" style=${isPrinted ? {} : { height: `${shown}px` }}>${body}</div>
    </div>
    ${isPrinted && rows > PRINTED && html`<p class="note">${rows - PRINTED} more rows are left out.</p>`}
  </div>`;
}
