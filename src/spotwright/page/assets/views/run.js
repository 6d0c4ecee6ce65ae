// One run: its head, and the tabs of its views.
import { html } from "htm/preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { get, runPath } from "../api.js";
import { amount, count, duration, moment, money, offset } from "../format.js";
import { Command, Loading, Problem, Status, say } from "../parts/common.js";
import { href, moves, route } from "../routes.js";
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
  const begin = useArrival(name, view);
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
    <span key=${viewName(view)} class="unseen" tabindex="-1" ref=${begin}>${viewName(view)}</span>
    ${error && html`<${Problem} error=${error} retry=${() => run.load()} />`}
    ${run.quiet.value && run.driven.value && html`<p class="problem" role="status">Connection to the server lost; the page may be out of date.</p>`}
    ${isReady && Part ? html`<${Part} run=${run} />` : html`<${Loading} what=${view} />`}
  </main>`;
}

// What a view shows, for people who listen and for the title of the window.
function viewName(view) {
  const { params } = route.value;
  const [task, n] = [params.get("task"), params.get("n")];
  if (view === "attempt") return n ? `${task}, attempt ${n}` : `${task}`;
  if (view === "log") return `Log of ${task}${n ? `, attempt ${n}` : ""}`;
  const title = TABS.find(([tab]) => tab === view)?.[1] ?? view;
  return view === "graph" && params.get("scope") ? `${title} of ${params.get("scope")}` : title;
}

// Where the focus goes when what had it is not there any more after a step to another view: to the beginning of the view, whose
// name is read. A step back to the timeline returns to its lanes, which know their mark.
function useArrival(run, view) {
  const begin = useRef(null);
  const name = viewName(view);
  useEffect(() => {
    document.title = `${name} · ${run} · Spotwright`;
  }, [run, name]);
  useEffect(() => {
    if (!moves.value) return () => {};
    const timer = setTimeout(() => {
      if (document.activeElement !== document.body) return;
      const lanes = view === "timeline" && route.value.params.get("lane") ? document.querySelector(".lanes .scroller") : null;
      (lanes ?? begin.current)?.focus({ preventScroll: true });
    }, SETTLES);
    return () => clearTimeout(timer);
  }, [moves.value]);
  return begin;
}

const SETTLES = 250; // milliseconds until a view has taken the place of the one before
const WAITS = 3; // reasons above the views; the others on request

function Head({ run }) {
  const head = run.head.value;
  useEffect(() => {
    // The account of a large run takes a while, so its head comes without; then it is asked for once more.
    if (head && head.summary.cost === null) get(runPath(run.name), { costs: "1" }).then((found) => found.seq >= run.head.value.seq && (run.head.value = found), () => {});
  }, [head === null, run.made]);
  const now = useNow(run);
  useEffect(() => {
    if (head) say(`Run ${head.summary.run}: ${head.summary.status}`);
  }, [head?.summary.status]);
  if (!head) return html`<header class="head"><h1>${run.name}</h1></header>`;
  const summary = head.summary;
  const seconds = run.driven.value && summary.finished_at === null ? Math.max(summary.seconds, now - summary.started_at) : summary.seconds;
  const counts = Object.entries(summary.tasks).filter(([status]) => status !== "all");
  const facts = [
    ["tasks", html`${count(summary.tasks.succeeded ?? 0)}<span class="of"> of ${count(summary.tasks.all)}</span>`, counts.map(([status, number]) => `${number} ${status}`).join(", ")],
    ["took", duration(seconds), `${moment(summary.started_at)}${summary.finished_at === null ? "" : ` to ${moment(summary.finished_at)}`}`],
    ["attempts", count(summary.attempts)],
    ["interruptions", count(summary.interruptions)],
    ["errors", count(summary.errors)],
    ["cost", summary.cost === null ? "…" : amount(summary.cost, summary.currency)],
    ["wasted", summary.wasted ? span((each) => amount(each, summary.currency), summary.wasted) : ""],
    ["saved", summary.saved ? span((each) => money(each, summary.currency), summary.saved) : ""],
  ].filter(([, value]) => value);
  return html`<header class="head">
    <h1>${summary.run} <${Status} status=${summary.status} />${summary.status === "running" && !head.driven ? html` <span class="note">its engine is not running</span>` : ""}</h1>
    ${!head.driven && ["running", "stopped"].includes(summary.status) && head.commands.resume && html`<${Command} label="go on" text=${head.commands.resume} />`}
    <p class="sub">${summary.pipeline}${summary.namespace ? ` in ${summary.namespace}` : ""}${summary.why ? html`: <span class="why">${summary.why}</span>` : ""}</p>
    <dl class="facts">${facts.map(([term, value, title]) => html`<div key=${term}><dt>${term}</dt><dd title=${title}>${value}</dd></div>`)}</dl>
    ${head.deadline && html`<${Deadline} deadline=${head.deadline} now=${now} run=${run} />`}
    ${head.waits?.length > 0 && html`<${Waits} waits=${head.waits} run=${run} />`}
    ${head.left_out?.length > 0 && html`<p class="sub">Left out for now: ${head.left_out.map((each) => `${each.pool} until ${offset(each.until - run.t0)}`).join(", ")}</p>`}
    ${head.budgets?.length > 0 && summary.status !== "succeeded" && html`<${Nearest} budget=${head.budgets[0]} run=${run} />`}
  </header>`;
}

// One value, or the lower and the higher one.
function span(text, { low, high }) {
  const [one, other] = [text(low), text(high)];
  return one === other ? one : `${one} to ${other}`;
}

// The server's clock in Unix seconds, a step each second while somebody drives the run.
function useNow(run) {
  const driven = run.driven.value;
  const [, tick] = useState(0);
  useEffect(() => {
    if (!driven) return () => {};
    const timer = setInterval(() => !document.hidden && tick((number) => number + 1), 1000);
    return () => clearInterval(timer);
  }, [driven]);
  return run.t0 + (run.now() ?? 0);
}

function Deadline({ deadline, now, run }) {
  const left = run.driven.value ? deadline.at - now : deadline.left;
  const last = deadline.last_moment;
  const word = deadline.words ? html`<strong>${deadline.words}</strong>` : left >= 0 ? html`<strong>${duration(left)} left</strong>` : html`<strong>${duration(-left)} over</strong>`;
  return html`<p class=${`deadline${deadline.late ? " late" : ""}`}>
    Deadline ${html`<span title=${moment(deadline.at)}>${offset(deadline.at - run.t0)}</span>`}: ${word}${
      last !== null ? html`; last moment at which on-demand still finishes: <span title=${moment(last)}>${offset(last - run.t0)}</span>${run.driven.value ? (last >= now ? ` (in ${duration(last - now)})` : ` (${duration(now - last)} ago)`) : ""}${deadline.task ? html` for <a href=${href("attempt", run.name, { task: deadline.task })}>${deadline.task}</a>` : ""}` : ""}
    ${deadline.reckons && html`<span class="note"> ${deadline.reckons}</span>`}
  </p>`;
}

function Waits({ waits, run }) {
  const [all, setAll] = useState(false);
  const shown = all ? waits : waits.slice(0, WAITS);
  return html`<ul class="waits" aria-label="What it waits for">
    ${shown.map((wait) => html`<li key=${`${wait.kind} ${wait.text}`}>
      <a href=${href("attempt", run.name, { task: wait.tasks[0] })}>${wait.tasks[0]}</a>${wait.of > 1 ? ` and ${count(wait.of - 1)} more` : ""} ${wait.text}${
        wait.since !== null ? html` <span class="note" title=${moment(wait.since)}>since ${offset(wait.since - run.t0)}</span>` : ""}${
        wait.until !== null ? html` <span class="note" title=${moment(wait.until)}>until ${offset(wait.until - run.t0)}</span>` : ""}
    </li>`)}
    ${waits.length > shown.length && html`<li><button type="button" class="quiet" onClick=${() => setAll(true)}>${count(waits.length - shown.length)} more reasons</button></li>`}
  </ul>`;
}

// The task that is nearest to the end of a budget.
function Nearest({ budget, run }) {
  const parts = ["interruptions", "errors", "moves"].filter((name) => budget[name].spent > 0 && budget[name].max > 0).map((name) => `${count(budget[name].spent)} of ${count(budget[name].max)} ${name}`);
  if (!parts.length) return null;
  return html`<p class="sub">Spent of its budgets: <a href=${href("attempt", run.name, { task: budget.task })}>${budget.task}</a> ${parts.join(", ")} <a href=${href("about", run.name)}>All</a></p>`;
}
