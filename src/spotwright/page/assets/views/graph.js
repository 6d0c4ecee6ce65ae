// One scope of the pipeline as a graph: tasks, pipelines and loops as nodes, with what became of them.
// Opening a pipeline shows its inside, opening a loop its iterations. Arrow keys go along the edges.
import { html } from "htm/preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { runPath } from "../api.js";
import { count, money, plural } from "../format.js";
import { Empty, Loading, Problem, Status } from "../parts/common.js";
import { Grid } from "../parts/grid.js";
import { layout } from "../parts/layout.js";
import { useDocument } from "../parts/load.js";
import { go, href, route } from "../routes.js";
import { classOf } from "../words.js";

const WIDTH = 196;
const HEIGHT = 62;
const PAGE = 1000; // nodes in one answer

export function Graph({ run }) {
  const scope = route.value.params.get("scope") ?? "";
  const first = Number(route.value.params.get("first")) || 0;
  const { answer, error, retry } = useDocument(runPath(run.name, "graph"), { scope, first }, { live: run.driven.value, every: 1000 });
  if (!answer) return error ? html`<${Problem} error=${error} retry=${retry} />` : html`<${Loading} what="the graph" />`;
  const summary = run.head.value?.summary;
  const currency = summary?.has_prices === false ? "node-hours" : (summary?.currency ?? "");
  const isTable = answer.as !== "graph";
  return html`<section class="view view-graph" aria-label="Graph">
    <nav class="path" aria-label="Where this is in the pipeline">${answer.path.map((step, index) =>
      index === answer.path.length - 1
        ? html`<span key=${step.id} aria-current="location">${step.name}</span>`
        : html`<a key=${step.id} href=${href("graph", run.name, { scope: step.id })}>${step.name}</a><span aria-hidden="true"> › </span>`)}</nav>
    ${isTable && answer.as === "table" && html`<p class="note">${count(answer.of)} tasks are too many to draw, so this is a list. <a href=${href("tasks", run.name)}>All tasks of the run</a></p>`}
    ${answer.of > answer.nodes.length && html`<nav class="pages" aria-label="Pages of the list">
      ${answer.first > 0 && html`<a href=${href("graph", run.name, { scope, first: Math.max(0, answer.first - PAGE) || "" })}>Previous</a>`}
      <span>${count(answer.first + 1)} to ${count(answer.first + answer.nodes.length)} of ${count(answer.of)}</span>
      ${answer.first + answer.nodes.length < answer.of && html`<a href=${href("graph", run.name, { scope, first: answer.first + answer.nodes.length })}>Next</a>`}
    </nav>`}
    ${!answer.nodes.length ? html`<${Empty}><p>This part has not started yet.</p><//>` : isTable ? html`<${List} run=${run} answer=${answer} currency=${currency} />` : html`<${Picture} run=${run} answer=${answer} currency=${currency} />`}
  </section>`;
}

// Where a node leads: into a pipeline or a loop, or to the newest attempt of a task.
const target = (run, node) =>
  node.opens !== null ? href("graph", run.name, { scope: node.opens }) : node.attempts ? href("attempt", run.name, { task: node.path, n: node.attempts }) : href("tasks", run.name, { q: node.path });

// A task as `show` names it: with its own name behind it where that is another one.
const nameOf = (node) => {
  const last = node.path.split("/").at(-1);
  return node.kind === "iteration" || node.name === last ? node.name : `${last} (${node.name})`;
};

const facts = (node, currency) =>
  [node.interruptions ? plural(node.interruptions, "interruption") : "", node.cost ? money(node.cost, currency) : "", node.iterations ? plural(node.iterations, "iteration") : ""].filter(Boolean).join(", ");

const counts = (node) => Object.entries(node.counts ?? {}).map(([status, number]) => `${count(number)} ${status}`).join(", ");

const sentence = (node, currency) => [`${nameOf(node)}, ${node.kind}, ${node.status}`, counts(node), node.condition ? `if ${node.condition}` : "", facts(node, currency)].filter(Boolean).join("; ");

function List({ run, answer, currency }) {
  const nodes = answer.nodes;
  const isList = answer.as === "list";
  const columns = [
    { key: "name", title: "Name", className: "wide name", cell: (row) => (nodes[row].kind === "iteration" ? nodes[row].name : nodes[row].path) },
    { key: "status", title: "Status", className: "status", cell: (row) => html`<${Status} status=${nodes[row].status} />` },
    { key: "counts", title: isList ? "Inside" : "Inside, or why", className: "wide text", cell: (row) => (nodes[row].opens === null ? nodes[row].why : counts(nodes[row])) },
    { key: "interruptions", title: "Interruptions", className: "number long", cell: (row) => count(nodes[row].interruptions) },
    { key: "cost", title: "Cost", className: "number range", cell: (row) => (nodes[row].cost ? money(nodes[row].cost, currency) : "") },
  ];
  const address = (row) => target(run, nodes[row]);
  return html`<${Grid} name="tasks of the graph" columns=${columns} rows=${nodes.length} address=${address} open=${(row) => go(address(row))} label=${(row) => sentence(nodes[row], currency)} />`;
}

function Picture({ run, answer, currency }) {
  const [placed, setPlaced] = useState(null);
  const [problem, setProblem] = useState(null);
  const [current, setCurrent] = useState(0);
  const box = useRef(null);
  const { nodes, edges } = answer;
  const ids = nodes.map((node) => node.id);
  const shape = JSON.stringify([ids, edges]);
  useEffect(() => {
    let wanted = true;
    layout(ids, edges, WIDTH, HEIGHT).then((found) => wanted && setPlaced({ ...found, shape }), (error) => wanted && setProblem(error));
    return () => (wanted = false);
  }, [shape]);
  if (problem) return html`<${Problem} error=${problem} />`;
  if (placed?.shape !== shape) return html`<${Loading} what="the graph" />`;
  const key = (event) => {
    const id = ids[current];
    const along = {
      ArrowDown: edges.filter(([from]) => from === id).map(([, to]) => to),
      ArrowUp: edges.filter(([, to]) => to === id).map(([from]) => from),
    }[event.key];
    const [x, y] = placed.places[current];
    const beside = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    let next = along?.length ? ids.indexOf(along[0]) : -1;
    if (beside) {
      const row = placed.places.map(([left, top], index) => ({ index, off: (left - x) * beside, top })).filter((each) => each.off > 0 && Math.abs(each.top - y) < HEIGHT);
      next = row.sort((one, other) => one.off - other.off)[0]?.index ?? -1;
    }
    if (event.key === "Home") next = 0;
    if (event.key === "End") next = nodes.length - 1;
    if (next < 0) return;
    event.preventDefault();
    setCurrent(next);
    box.current.querySelector(`[data-node="${next}"]`)?.focus();
  };
  return html`<div class="picture scroll" ref=${box} onKeyDown=${key}>
    <div class="sheet" style=${{ width: `${placed.width}px`, height: `${placed.height}px` }}>
      <svg width=${placed.width} height=${placed.height} aria-hidden="true">
        <defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z" class="arrow" /></marker></defs>
        ${placed.lines.map((points, index) => html`<path key=${edges[index].join(">")} class="edge" d=${points.map(([x, y], at) => `${at ? "L" : "M"}${x} ${y}`).join("")} marker-end="url(#arrow)" />`)}
      </svg>
      <ul class="nodes">${nodes.map((node, index) => html`<li key=${node.id} style=${{ transform: `translate(${placed.places[index][0]}px, ${placed.places[index][1]}px)`, width: `${WIDTH}px`, height: `${HEIGHT}px` }}>
        <a class=${`node ${classOf("kind", node.kind)} ${classOf("status", node.status)}`} href=${target(run, node)} data-node=${index} tabindex=${index === current ? 0 : -1} aria-label=${sentence(node, currency)} title=${sentence(node, currency)} onFocus=${() => setCurrent(index)}>
          <span class="node-name">${nameOf(node)}</span>
          <span class="node-status">${node.status}${node.iterations ? ` · ${plural(node.iterations, "iteration")}` : ""}</span>
          <span class="node-facts">${[node.interruptions ? plural(node.interruptions, "interruption") : "", node.cost ? money(node.cost, currency) : ""].filter(Boolean).join(" · ") || (node.condition ? `if ${node.condition}` : "")}</span>
        </a></li>`)}</ul>
    </div></div>`;
}
