// One run: its head, and the tabs of its views.
import { html } from "htm/preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { amount, count, duration } from "../format.js";
import { Loading, Problem, Status } from "../parts/common.js";
import { href, route } from "../routes.js";
import { Run } from "../store.js";

// The views of a run: name in the address, title, module. A module loads when its tab is opened.
export const TABS = [
  ["timeline", "Timeline", () => import("./timeline.js").then((module) => module.Timeline)],
  ["graph", "Graph", () => import("./graph.js").then((module) => module.Graph)],
  ["tasks", "Tasks", () => import("./tasks.js").then((module) => module.Tasks)],
  ["account", "Cost", () => import("./account.js").then((module) => module.AccountView)],
  ["plan", "Plan", () => import("./plan.js").then((module) => module.Plan)],
  ["nodes", "Nodes", () => import("./nodes.js").then((module) => module.Nodes)],
  ["history", "History", () => import("./history.js").then((module) => module.History)],
  ["about", "About", () => import("./about.js").then((module) => module.About)],
];
const PANELS = {
  attempt: () => import("./attempt.js").then((module) => module.Attempt),
  log: () => import("./log.js").then((module) => module.Log),
};

export function RunPage() {
  const { run: name, view } = route.value;
  const run = useMemo(() => new Run(name), [name]);
  const [part, setPart] = useState(null);
  useEffect(() => {
    run.load();
    return () => run.close();
  }, [run]);
  const load = PANELS[view] ?? TABS.find(([tab]) => tab === view)?.[2];
  useEffect(() => {
    let wanted = true;
    setPart(null);
    load?.().then(
      (component) => wanted && setPart({ view, component }),
      (error) => wanted && (run.error.value = error),
    );
    return () => (wanted = false);
  }, [view, run]);
  const error = run.error.value;
  if (error && !run.head.value) return html`<main class="view"><h1>${name}</h1><${Problem} error=${error} retry=${() => run.load()} /></main>`;
  if (!load) return html`<main class="view"><h1>${name}</h1><${Problem} error=${new Error(`There is no view ${view}.`)} /></main>`;
  const isReady = run.timeline.value !== null;
  const Part = part?.view === view ? part.component : null;
  return html`<main class=${`run run-${view}`}>
    <${Head} run=${run} />
    <nav class="tabs" aria-label="Views of the run">${TABS.map(
      ([tab, title]) => html`<a key=${tab} href=${href(tab, name)} aria-current=${tab === view ? "page" : undefined}>${title}</a>`,
    )}</nav>
    ${error && html`<${Problem} error=${error} retry=${() => run.load()} />`}
    ${run.quiet.value && run.driven.value && html`<p class="problem" role="status">The connection to the server is interrupted; what is shown may be old.</p>`}
    ${isReady && Part ? html`<${Part} run=${run} />` : html`<${Loading} what=${view} />`}
  </main>`;
}

function Head({ run }) {
  const head = run.head.value;
  if (!head) return html`<header class="head"><h1>${run.name}</h1></header>`;
  const summary = head.summary;
  const facts = [
    ["took", duration(summary.seconds)],
    ["attempts", count(summary.attempts)],
    ["interruptions", count(summary.interruptions)],
    ["errors", count(summary.errors)],
    ["cost", amount(summary.cost, summary.currency)],
  ];
  return html`<header class="head">
    <h1>${summary.run} <${Status} status=${summary.status} /></h1>
    <p class="sub">${summary.pipeline}${summary.why ? html`: <span class="why">${summary.why}</span>` : ""}</p>
    <dl class="facts">${facts.map(([term, value]) => html`<div key=${term}><dt>${term}</dt><dd>${value}</dd></div>`)}</dl>
    ${head.deadline && html`<p class=${`deadline${head.deadline.late ? " late" : ""}`}>${head.deadline.words}</p>`}
    ${head.waits?.length > 0 && html`<ul class="waits">${head.waits.slice(0, 3).map((wait) => html`<li key=${wait.text}>${wait.text}</li>`)}</ul>`}
  </header>`;
}
