// Three charts as SVG, which print as vectors: a stacked bar, intervals with a histogram, and lines over time.
// Each has a caption for screen readers, and the view beside it has the same figures as a table.
import { html } from "htm/preact";
import { useRef } from "preact/hooks";
import { clockStep } from "../format.js";
import { classOf } from "../words.js";
import { useSize } from "./window.js";

// The width of an element in pixels, and a ref for it.
export function useWidth(start = 600) {
  const box = useRef(null);
  const { width } = useSize(box, { width: start, height: 0 });
  return [box, Math.max(120, width)];
}

// Round steps for an axis: at most `most` of them from 0 to `end`.
export function ticks(end, most = 6) {
  if (!(end > 0)) return [0];
  const rough = end / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
  return Array.from({ length: Math.floor(end / step + 1e-9) + 1 }, (_, index) => index * step);
}

// Round steps of a clock.
export function clockTicks(end, most = 6) {
  const step = clockStep(end / most);
  return end > 0 ? Array.from({ length: Math.floor(end / step + 1e-9) + 1 }, (_, index) => index * step) : [0];
}

// `parts`: [{key, title, low, high, text}]; low is certain, from low to high it is hatched.
export function StackedBar({ parts, caption }) {
  const [box, width] = useWidth();
  const whole = parts.reduce((sum, part) => sum + part.high, 0);
  let at = 0;
  return html`<figure class="chart bar-chart" ref=${box}>
    <svg width=${width} height="34" viewBox=${`0 0 ${width} 34`} role="img" aria-label=${caption}>
      <defs><pattern id="uncertain" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="3" height="6" class="hatch" /></pattern></defs>
      ${whole > 0 && parts.map((part) => {
        const x = (at / whole) * width;
        const full = (part.high / whole) * width;
        const sure = (part.low / whole) * width;
        at += part.high;
        return html`<g key=${part.key} class=${classOf("part", part.key)}>
          <title>${part.title}: ${part.text}</title>
          <rect x=${x} y="4" width=${Math.max(0, full - 1)} height="26" class="fill" />
          ${full - sure > 0.5 && html`<rect x=${x + sure} y="4" width=${full - sure - 1} height="26" fill="url(#uncertain)" />`}
        </g>`;
      })}
    </svg>
    <ul class="legend">${parts.filter((part) => part.high > 0).map((part) => html`<li key=${part.key} class=${classOf("part", part.key)}>
      <svg width="12" height="12" aria-hidden="true"><rect width="12" height="12" class="fill" /></svg>${part.title}</li>`)}</ul>
  </figure>`;
}

// One row for each policy: p10 to p90 as a box, p50 as a line, p99 as a whisker, the histogram above it; `actual` crosses all.
export function Intervals({ rows, actual, text, caption, steps = ticks }) {
  const [box, width] = useWidth();
  const left = Math.min(150, width * 0.28);
  const finite = rows.flatMap((row) => [row.p99, row.p90, row.p50]).filter((value) => value !== null && Number.isFinite(value));
  const end = Math.max(1e-9, ...finite, actual ?? 0) * 1.04;
  const x = (value) => left + (Math.min(value, end) / end) * (width - left - 12);
  const step = 54;
  const height = rows.length * step + 26;
  return html`<figure class="chart" ref=${box}>
    <svg width=${width} height=${height} viewBox=${`0 0 ${width} ${height}`} role="img" aria-label=${caption}>
      ${steps(end, width < 500 ? 3 : 6).map((tick) => html`<g key=${tick}>
        <line class="axis" x1=${x(tick)} x2=${x(tick)} y1="0" y2=${height - 20} />
        <text class="tick" x=${x(tick)} y=${height - 6} text-anchor="middle">${text(tick)}</text></g>`)}
      ${rows.map((row, index) => {
        const y = index * step + 34;
        const most = Math.max(1, ...(row.bins?.counts ?? []));
        return html`<g key=${row.name} class=${row.best ? "best" : ""}>
          <title>${row.name}: ${row.words}</title>
          <text class="name" x="0" y=${y + 4}>${row.name}</text>
          ${row.bins?.counts.map((number, bin) => number > 0 && html`<rect key=${bin} class="bin" x=${x(row.bins.edges[bin])}
            width=${Math.max(1, x(row.bins.edges[bin + 1]) - x(row.bins.edges[bin]))} y=${y - 8 - (number / most) * 22} height=${(number / most) * 22} />`)}
          ${row.p10 !== null && html`<line class="whisker" x1=${x(row.p10)} x2=${x(row.p99 ?? row.p90 ?? end)} y1=${y} y2=${y} />
          <rect class="box" x=${x(row.p10)} y=${y - 6} width=${Math.max(2, x(row.p90 ?? end) - x(row.p10))} height="12" />
          <line class="middle" x1=${x(row.p50 ?? end)} x2=${x(row.p50 ?? end)} y1=${y - 6} y2=${y + 6} />`}
        </g>`;
      })}
      ${actual !== null && actual !== undefined && html`<g><line class="actual" x1=${x(actual)} x2=${x(actual)} y1="0" y2=${height - 20} />
        <text class="actual-text" x=${Math.min(x(actual) + 4, width - 40)} y="11">${text(actual)}</text></g>`}
    </svg>
  </figure>`;
}

// `lines`: [{key, title, values}] over `times` in seconds; values never fall here, but need not begin at 0.
export function Lines({ times, lines, xText, yText, caption }) {
  const [box, width] = useWidth();
  const height = 180;
  const left = 64;
  const end = Math.max(1e-9, ...times);
  const top = Math.max(1e-12, ...lines.flatMap((line) => line.values));
  const x = (value) => left + (value / end) * (width - left - 12);
  const y = (value) => height - 24 - (value / top) * (height - 36);
  return html`<figure class="chart" ref=${box}>
    <svg width=${width} height=${height} viewBox=${`0 0 ${width} ${height}`} role="img" aria-label=${caption}>
      ${ticks(top, 5).map((tick) => html`<g key=${tick}><line class="axis" x1=${left} x2=${width} y1=${y(tick)} y2=${y(tick)} />
        <text class="tick" x=${left - 6} y=${y(tick) + 4} text-anchor="end">${yText(tick)}</text></g>`)}
      ${clockTicks(end, width < 500 ? 3 : 6).map((tick) => html`<text key=${tick} class="tick" x=${x(tick)} y=${height - 6} text-anchor="middle">${xText(tick)}</text>`)}
      ${lines.map((line) => html`<path key=${line.key} class=${`curve ${classOf("part", line.key)}`} d=${path(times, line.values, x, y)}><title>${line.title}</title></path>`)}
    </svg>
    <ul class="legend">${lines.map((line) => html`<li key=${line.key} class=${classOf("part", line.key)}>
      <svg width="18" height="12" aria-hidden="true"><line class="curve" x1="0" x2="18" y1="6" y2="6" /></svg>${line.title}</li>`)}</ul>
  </figure>`;
}

const path = (times, values, x, y) => times.map((time, index) => `${index ? "L" : "M"}${x(time).toFixed(1)} ${y(values[index]).toFixed(1)}`).join("");
