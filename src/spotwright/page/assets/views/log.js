// One log in full, or those of all attempts of a task one after the other.
import { html } from "htm/preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { Problem } from "../parts/common.js";
import { Log, LogText } from "../parts/log.js";
import { href, route, set } from "../routes.js";

// The log of an address. It begins at its end, and follows it while it grows, unless the address has a line.
export function LogOf({ run, task, n = "", environment = "", tall = true }) {
  const text = useMemo(() => new LogText(run.name, { task, n, environment }), [run, task, n, environment]);
  useEffect(() => () => text.close(), [text]);
  const tasks = run.tasks.value;
  tasks.version.value;
  const attempts = tasks.attempts[tasks.path.indexOf(task)];
  useEffect(() => {
    if (text.known && text.ended) text.follow(3000); // a new attempt, or a run that goes on again
  }, [run.driven.value, attempts]);
  const params = route.value.params;
  const line = /^[0-9]{1,12}$/.test(params.get("line") ?? "") ? Number(params.get("line")) : 0;
  const [wanted, setWanted] = useState(line === 0);
  const follows = wanted && !text.ended;
  return html`<${Log} key=${`${task} ${n} ${environment}`} text=${text} line=${line} q=${params.get("find") ?? ""} wrap=${params.get("wrap") === "1"}
    follows=${follows} lineAddress=${(number) => href(route.value.view, run.name, { ...Object.fromEntries(params), line: number })} onFollow=${setWanted} onLine=${(number) => set({ line: number || "" })}
    onQuery=${(q) => set({ find: q })} onWrap=${(on) => set({ wrap: on ? "1" : "" })}
    name=${environment ? `Log of the environment of ${task}` : n ? `Log of ${task}, attempt ${n}` : `Logs of ${task}`} tall=${tall} />`;
}

export function LogView({ run }) {
  const params = route.value.params;
  const task = params.get("task") ?? "";
  const n = params.get("n") ?? "";
  const environment = params.get("environment") ?? "";
  if (!task) return html`<${Problem} error=${new Error("The address does not name a task: open a log from its task.")} />`;
  const row = run.tasks.value.path.indexOf(task);
  const attempts = row < 0 ? 0 : run.tasks.value.attempts[row];
  run.tasks.value.version.value; // a new attempt has a new log
  const keep = { find: params.get("find"), wrap: params.get("wrap") };
  const numbers = Array.from({ length: Math.min(attempts, 50) }, (_, index) => attempts - index);
  return html`<section class="view view-log" aria-label="Log">
    <div class="title">
      <h2>${environment ? html`Environment of <code>${task}</code>` : html`<code>${task}</code>${n ? `, attempt ${n}` : ", all attempts"}`}</h2>
      <nav class="links" aria-label="Logs of the task">
        ${!environment && html`<a href=${href("attempt", run.name, { task, n: n || attempts })}>Why it ended</a>`}
        ${(n || environment) && html`<a href=${href("log", run.name, { task, ...keep })}>All attempts</a>`}
        ${attempts > 1 && numbers.reverse().map((number) => html`<a key=${number} href=${href("log", run.name, { task, n: number, ...keep })} aria-current=${String(number) === n ? "page" : undefined} aria-label=${`Attempt ${number}`}>${number}</a>`)}
      </nav>
    </div>
    <${LogOf} run=${run} task=${task} n=${n} environment=${environment} />
  </section>`;
}
export { LogView as Log };
