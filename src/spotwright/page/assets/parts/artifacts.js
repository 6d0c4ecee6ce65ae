// What a task made, drawn: metrics, a confusion matrix, a ROC curve, HTML in a frame without rights, images, tables, texts.
import { html } from "htm/preact";
import { runPath } from "../api.js";
import { bytes, count } from "../format.js";
import { apiAddress } from "../routes.js";
import { Outside, Value } from "./values.js";

const SHADES = 8; // classes of a matrix's cells, from light to dark
const SIDE = 240; // units of a curve's drawing
const EDGE = 34;

export function Artifact({ artifact, run, task }) {
  const metadata = Object.entries(artifact.metadata ?? {});
  const Part = PARTS[artifact.kind];
  const address = apiAddress(runPath(run.name, "artifact"), { task, name: artifact.name });
  return html`<article class="artifact" aria-label=${artifact.name}>
    <h3>${artifact.name} <span class="note">${artifact.type}${artifact.bytes !== undefined ? `, ${bytes(artifact.bytes)}` : ""}</span></h3>
    ${artifact.uri && html`<p><${Outside} address=${artifact.uri} /></p>`}
    ${metadata.length > 0 && html`<${Table} name=${`Metadata of ${artifact.name}`} rows=${metadata} />`}
    ${Part && html`<${Part} artifact=${artifact} address=${address} />`}
    ${artifact.why && html`<p class="note">Not shown: ${artifact.why}.</p>`}
  </article>`;
}

// Names and values below each other.
function Table({ name, rows }) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${name}><table class="plain named"><tbody>${rows.map(
    ([key, value]) => html`<tr key=${key}><th scope="row">${key}</th><td><${Value} value=${value} /></td></tr>`,
  )}</tbody></table></div>`;
}

function Metrics({ artifact }) {
  return artifact.metrics.length ? html`<${Table} name=${`Metrics of ${artifact.name}`} rows=${artifact.metrics} />` : null;
}

function Classification({ artifact }) {
  return html`<${Metrics} artifact=${artifact} />
    ${artifact.matrix && html`<${Matrix} name=${artifact.name} matrix=${artifact.matrix} />`}
    ${artifact.curve && html`<${Curve} name=${artifact.name} curve=${artifact.curve} points=${artifact.points} />`}`;
}

// The share of each row decides the shade, so that classes of different size can be compared.
function Matrix({ name, matrix }) {
  const sums = matrix.rows.map((row) => row.reduce((sum, value) => sum + Math.max(0, value ?? 0), 0));
  const shade = (value, sum) => (sum && value > 0 ? Math.min(SHADES - 1, 1 + Math.floor((value / sum) * (SHADES - 1.001))) : 0);
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${`Confusion matrix of ${name}`}><table class="matrix">
    <caption>Confusion matrix: true classes below each other, predicted ones beside each other</caption>
    <thead><tr><td></td>${matrix.names.map((each) => html`<th scope="col" key=${each}>${each}</th>`)}</tr></thead>
    <tbody>${matrix.rows.map((row, index) => html`<tr key=${index}><th scope="row">${matrix.names[index]}</th>${row.map(
      (value, at) => html`<td key=${at} class=${`shade-${shade(value, sums[index])}${at === index ? " right" : ""}`}>${value ?? "–"}</td>`,
    )}</tr>`)}</tbody>
  </table></div>`;
}

function Curve({ name, curve, points }) {
  const drawn = curve.filter(([, wrong, right]) => wrong !== null && right !== null);
  const x = (share) => EDGE + share * (SIDE - EDGE - 8);
  const y = (share) => SIDE - EDGE - share * (SIDE - EDGE - 8);
  const number = (value) => (value === null ? "–" : String(Math.round(value * 10000) / 10000));
  const ticks = [0, 0.5, 1];
  return html`<figure class="curve">
    <svg viewBox=${`0 0 ${SIDE} ${SIDE}`} width=${SIDE * 1.4} height=${SIDE * 1.4} role="img" aria-label=${`ROC curve of ${name}, ${count(points)} points; the table has them`}>
      <path class="axis" d=${`M${x(0)} ${y(1)}V${y(0)}H${x(1)}`} />
      <path class="chance" d=${`M${x(0)} ${y(0)}L${x(1)} ${y(1)}`} />
      ${ticks.map((tick) => html`<text key=${`x${tick}`} x=${x(tick)} y=${SIDE - EDGE + 14} text-anchor="middle">${tick}</text><text key=${`y${tick}`} x=${EDGE - 6} y=${y(tick) + 4} text-anchor="end">${tick}</text>`)}
      <text x=${x(0.5)} y=${SIDE - 4} text-anchor="middle">false positive rate</text>
      <text transform=${`translate(10 ${y(0.5)}) rotate(-90)`} text-anchor="middle">true positive rate</text>
      <polyline class="roc" points=${drawn.map(([, wrong, right]) => `${x(wrong)},${y(right)}`).join(" ")} />
    </svg>
    <details><summary>The curve as a table${points > curve.length ? `, ${count(curve.length)} of its ${count(points)} points` : ""}</summary>
      <div class="scroll" tabindex="0" role="region" aria-label=${`Points of the ROC curve of ${name}`}><table class="plain"><thead><tr><th scope="col" class="number">Threshold</th><th scope="col" class="number">False positive rate</th><th scope="col" class="number">True positive rate</th></tr></thead>
      <tbody>${curve.map((point, index) => html`<tr key=${index}>${point.map((value, at) => html`<td key=${at} class="number">${number(value)}</td>`)}</tr>`)}</tbody></table></div>
    </details>
  </figure>`;
}

// The frame has no rights: no script, no form, which has no address on this page. The server also gives it its own policy.
const Frame = ({ artifact, address }) => html`<iframe class="report" sandbox="" referrerpolicy="no-referrer" loading="lazy" title=${`${artifact.name}, made by the task`} src=${address}></iframe>`;

const Picture = ({ artifact, address }) => html`<img class="picture" src=${address} alt=${`${artifact.name}, made by the task`} loading="lazy" />`;

const Text = ({ artifact }) => html`<pre class="text" tabindex="0">${artifact.text}</pre>${artifact.cut && html`<p class="note">Only its beginning is shown.</p>`}`;

function Cells({ artifact }) {
  const hasHead = artifact.header.some(Boolean);
  return html`<div class="scroll cells" tabindex="0" role="region" aria-label=${`Table ${artifact.name}`}><table class="plain">
    ${hasHead && html`<thead><tr>${artifact.header.map((each, index) => html`<th scope="col" key=${index}>${each}</th>`)}</tr></thead>`}
    <tbody>${artifact.rows.map((row, index) => html`<tr key=${index}>${row.map((each, at) => html`<td key=${at}>${each}</td>`)}</tr>`)}</tbody>
  </table></div>${artifact.cut && html`<p class="note">Only its first ${count(artifact.rows.length)} rows and ${count(artifact.header.length)} columns are shown.</p>`}`;
}

function Files({ artifact }) {
  if (!artifact.files) return null;
  return html`<ul class="files">${artifact.files.map(([name, size]) => html`<li key=${name}><code>${name}</code> <span class="note">${size === null ? "folder" : bytes(size)}</span></li>`)}</ul>${artifact.cut && html`<p class="note">There are more.</p>`}`;
}

const PARTS = { metrics: Metrics, confusion: Classification, html: Frame, image: Picture, markdown: Text, text: Text, table: Cells, file: Files };
