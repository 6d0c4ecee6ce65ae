// Why an attempt ended, from recorded data: the sentence, the evidence, what followed, what else ended there, its events, its log.
import { html } from "htm/preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { get, runPath } from "../api.js";
import { amount, bytes, count, duration, moment, offset, percent } from "../format.js";
import { Command, Loading, Problem, Status } from "../parts/common.js";
import { Cause, Document, Value } from "../parts/values.js";
import { href, route } from "../routes.js";
import { LogOf } from "./log.js";

const NOT_YET = 100; // events of a task without attempts
const BESIDE = 20; // other ends on the node that are listed
const EVERY = 2000; // milliseconds between questions about an attempt that runs
const EVENTS = 30; // at the begin and at the end of a long list; the others on request

export function Attempt({ run }) {
  const params = route.value.params;
  const task = params.get("task") ?? "";
  const tasks = run.tasks.value;
  tasks.version.value;
  const row = tasks.path.indexOf(task);
  const attempts = row < 0 ? 0 : tasks.attempts[row];
  const n = params.get("n") || String(attempts || "");
  if (!task) return html`<${Problem} error=${new Error("The address does not name a task: open an attempt from its task.")} />`;
  if (row >= 0 && !attempts) return html`<${NotYet} run=${run} task=${task} row=${row} />`;
  return html`<${One} key=${`${task} ${n}`} run=${run} task=${task} n=${n} of=${attempts} />`;
}

// A task that has no attempt: why, or what it waits for, and its events.
function NotYet({ run, task, row }) {
  const tasks = run.tasks.value;
  const waits = tasks.waits[row];
  const status = tasks.word("status", row);
  const isCached = Boolean(tasks.cached[row]);
  const [answer, setAnswer] = useState(null);
  useEffect(() => {
    const stop = new AbortController();
    get(runPath(run.name, "history"), { task, limit: NOT_YET }, { signal: stop.signal }).then(setAnswer, () => setAnswer(null)); // the sentence above tells enough
    return () => stop.abort();
  }, [task, status, waits]);
  const why = tasks.why[row] || waits || (isCached ? "The result of an earlier run is used." : `It is ${status}.`);
  const since = (at) => html`<span title=${moment(at)}>${offset(at - run.t0)}</span>`;
  return html`<section class="view view-attempt" aria-label="Attempt">
    <div class="title"><h2><code>${task}</code>, no attempt${waits ? " yet" : ""} <${Status} status=${status} /></h2>
      <nav class="links" aria-label="Of the task">
        ${isCached && html`<a href=${href("log", run.name, { task })}>Log of the earlier run</a>`}
        <a href=${href("history", run.name, { task })}>All events</a>
      </nav></div>
    <p class="sentence">${why}</p>
    ${answer && html`<div class="panel"><${Events} answer=${{ events: answer.rows, events_left_out: 0 }} since=${since} /></div>`}
  </section>`;
}

function One({ run, task, n, of }) {
  const [answer, setAnswer] = useState(null);
  const [error, setError] = useState(null);
  const signs = signsOf(run, task, Number(n));
  const asked = useRef(0);
  const [tries, setTries] = useState(0);
  const beat = useBeat(run.driven.value && answer?.attempt.ended_at === null);
  useEffect(() => {
    const stop = new AbortController();
    // An attempt that changes is asked for at most once a second.
    const timer = setTimeout(
      () => {
        asked.current = Date.now();
        get(runPath(run.name, "attempt"), { task, n }, { signal: stop.signal }).then(
          (found) => {
            setAnswer(found);
            setError(null);
          },
          (problem) => problem.name !== "AbortError" && setError(problem),
        );
      },
      Math.max(0, asked.current + 1000 - Date.now()),
    );
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [signs, tries, beat]);
  const problem = error && html`<${Problem} error=${error} retry=${() => setTries(tries + 1)} />`;
  if (!answer) return problem ?? html`<${Loading} what="the attempt" />`;
  const attempt = answer.attempt;
  const since = (at) => html`<span title=${moment(at)}>${at === null || at === undefined ? "" : offset(at - run.t0)}</span>`;
  return html`<section class="view view-attempt" aria-label="Attempt">
    ${problem}
    <div class="title">
      <h2><code>${task}</code>, attempt ${attempt.number} of ${Math.max(of, attempt.number)} <${Cause} cause=${attempt.cause ?? (attempt.status === "pending" ? "pending" : "running")} /></h2>
      <nav class="links" aria-label="Attempts of the task">
        ${answer.log && html`<a href=${href("log", run.name, { task, n: attempt.number })}>Log in full</a>`}
        ${run.head.value?.artifacts.some((each) => each.task === task) && html`<a href=${href("about", run.name, { task })}>Artifacts</a>`}
        ${attempt.number > 1 && html`<a rel="prev" href=${href("attempt", run.name, { task, n: attempt.number - 1 })}>← Attempt ${attempt.number - 1}</a>`}
        ${attempt.number < of && html`<a rel="next" href=${href("attempt", run.name, { task, n: attempt.number + 1 })}>Attempt ${attempt.number + 1} →</a>`}
      </nav>
    </div>
    <div class="panel">
      <p class="sentence">${answer.sentence}</p>
      <${Where} attempt=${attempt} since=${since} />
      ${answer.rule && html`<${Rule} rule=${answer.rule} />`}
      ${answer.waiting && html`<${Waiting} waiting=${answer.waiting} since=${since} />`}
      ${answer.evidence.length > 0 && html`<${Evidence} evidence=${answer.evidence} since=${since} />`}
      ${answer.followed && html`<${Followed} followed=${answer.followed} since=${since} />`}
      ${(answer.beside.length > 0 || (attempt.node && attempt.ended_at !== null)) && html`<${Beside} beside=${answer.beside} node=${attempt.node} run=${run} since=${since} />`}
      <${Events} answer=${answer} since=${since} />
      <${Measures} answer=${answer} run=${run} since=${since} />
      ${answer.commands.logs && html`<h3>Command</h3><${Command} label="log" text=${answer.commands.logs} />`}
    </div>
    <h3 class="log-title">Log</h3>
    ${answer.log
      ? html`<${LogOf} run=${run} task=${task} n=${String(attempt.number)} tall=${false} />`
      : html`<p class="note">${attempt.ended_at === null ? "It has no node yet, so its log is empty." : "It has no log here."}</p>`}
  </section>`;
}

// Counts while something runs whose time and cost grow, and the window is visible.
function useBeat(isOn) {
  const [beat, setBeat] = useState(0);
  useEffect(() => {
    if (!isOn) return () => {};
    const timer = setInterval(() => !document.hidden && setBeat((number) => number + 1), EVERY);
    return () => clearInterval(timer);
  }, [isOn]);
  return beat;
}

// What of the columns tells that this attempt has changed.
function signsOf(run, task, number) {
  const tasks = run.tasks.value;
  const attempts = run.attempts.value;
  attempts.version.value;
  const of = tasks.path.indexOf(task);
  const signs = [run.made];
  if (of >= 0) signs.push(tasks.attempts[of], tasks.status[of], tasks.waits[of], tasks.why[of]);
  for (let row = attempts.rows - 1; of >= 0 && row >= 0; row--) {
    if (attempts.task[row] === of && attempts.number[row] === number) {
      for (const name of attempts.names) signs.push(JSON.stringify(attempts[name][row]));
      break;
    }
  }
  return signs.join("\n");
}

function Where({ attempt, since }) {
  const facts = [
    ["node", attempt.node],
    ["pool", attempt.pool ?? attempt.pools.join(", ")],
    ["capacity", attempt.capacity],
    ["placed", since(attempt.placed_at)],
    ["on its node", attempt.bound_at === null ? "" : since(attempt.bound_at)],
    ["notice", attempt.noticed_at === null ? "" : since(attempt.noticed_at)],
    ["node goes", attempt.goes_at === null ? "" : since(attempt.goes_at)],
    ["ended", attempt.ended_at === null ? "" : since(attempt.ended_at)],
    ["took", attempt.bound_at === null ? "" : duration(attempt.seconds)],
  ].filter(([, value]) => value);
  const reasons = [...attempt.tried, attempt.placed_why, attempt.kept_why, attempt.moved_why, attempt.released].filter(Boolean);
  return html`<dl class="facts">${facts.map(([term, value]) => html`<div key=${term}><dt>${term}</dt><dd>${value}</dd></div>`)}</dl>
    ${reasons.length > 0 && html`<ul class="reasons">${reasons.map((reason, index) => html`<li key=${index}>${reason}</li>`)}</ul>`}`;
}

function Rule({ rule }) {
  return html`<p class="rule">Rule ${rule.row}: ${rule.text} <${Document} at=${rule.link} /></p>
    <details class="rules"><summary>All ${rule.table.length} rules, read from the first; the first that fits decides</summary>
      <ol>${rule.table.map((text, index) => html`<li key=${index} class=${index + 1 === rule.row ? "decides" : undefined} aria-current=${index + 1 === rule.row ? "true" : undefined}>${text}${index + 1 === rule.row ? html` <strong>← this one</strong>` : ""}</li>`)}</ol>
    </details>`;
}

function Waiting({ waiting, since }) {
  return html`<h3>What it waits for</h3>
    <p>${waiting.why}</p>
    <dl class="facts">
      <div><dt>since</dt><dd>${since(waiting.since)}</dd></div>
      ${waiting.until !== null && html`<div><dt>at most until</dt><dd>${since(waiting.until)}</dd></div>`}
      ${waiting.pools.length > 0 && html`<div><dt>for a node of</dt><dd>${waiting.pools.join(", ")}</dd></div>`}
      ${waiting.next_pools.length > 0 && html`<div><dt>then for one of</dt><dd>${waiting.next_pools.join(", ")}</dd></div>`}
    </dl>
    ${waiting.stays && html`<p>It stays: ${waiting.stays}</p>`}
    ${waiting.command && html`<${Command} label="explain" text=${waiting.command} />`}`;
}

function Evidence({ evidence, since }) {
  return html`<h3>Evidence</h3>
    <div class="scroll" tabindex="0" role="region" aria-label="Evidence"><table class="plain evidence">
      <thead><tr><th scope="col">Signal</th><th scope="col">Value</th><th scope="col">Told by</th><th scope="col">At</th><th scope="col">Decided</th></tr></thead>
      <tbody>${evidence.map((each, index) => html`<tr key=${index} class=${each.decided ? "decided" : undefined}>
        <td class="signal">${each.signal.replaceAll("_", " ")}</td><td><${Value} value=${each.value} /></td><td>${each.told_by}</td><td>${since(each.at)}</td><td>${each.decided ? "✓ decided" : ""}</td>
      </tr>`)}</tbody>
    </table></div>`;
}

const BUDGETS = ["interruptions", "errors", "moves"];

function Followed({ followed, since }) {
  const changed = BUDGETS.filter((name) => followed.budget_before[name].spent !== followed.budget_after[name].spent);
  return html`<h3>What followed</h3>
    <p>${followed.text}</p>
    <dl class="facts">
      ${BUDGETS.filter((name) => followed.budget_after[name].max || followed.budget_after[name].spent).map((name) => {
        const before = followed.budget_before[name];
        const after = followed.budget_after[name];
        return html`<div key=${name}><dt>${name} spent</dt><dd>${changed.includes(name) ? `${count(before.spent)} → ${count(after.spent)}` : count(after.spent)}${html`<span class="of"> of ${after.max}</span>`}</dd></div>`;
      })}
      ${followed.rung !== null && html`<div><dt>rung</dt><dd>${followed.rung}${followed.pools.length ? html`<span class="of"> ${followed.pools.join(", ")}</span>` : ""}</dd></div>`}
      ${followed.wait > 0 && html`<div><dt>backoff</dt><dd>${duration(followed.wait)}<span class="of"> until </span>${since(followed.due)}</dd></div>`}
    </dl>
    <p class="note">Row ${followed.row} of the table of what follows. <${Document} at=${followed.link} /></p>`;
}

function Beside({ beside, node, run, since }) {
  return html`<h3>What else ended on ${node} within a minute</h3>
    ${beside.length === 0 ? html`<p class="note">Nothing else of this run.</p>` : html`<ul class="beside">${beside.slice(0, BESIDE).map(
      (each) => html`<li key=${`${each.run} ${each.task} ${each.attempt}`}>
        <a href=${href("attempt", each.run, { task: each.task, n: each.attempt })}>${each.run === run.name ? "" : `${each.run}: `}${each.task}, attempt ${each.attempt}</a> <${Cause} cause=${each.cause} /> ${since(each.at)}
      </li>`,
    )}${beside.length > BESIDE && html`<li class="note">and ${count(beside.length - BESIDE)} more</li>`}</ul>`}`;
}

function Events({ answer, since }) {
  const [all, setAll] = useState(false);
  const events = answer.events;
  const isLong = !all && events.length > 2 * EVENTS + 10;
  const hidden = isLong ? events.length - 2 * EVENTS : 0;
  const item = (event) => html`<li key=${event.seq} class=${event.decision ? "decision" : "fact"}>
    <details><summary><span class="when">${since(event.at)}</span> <span class="sort">${event.decision ? "decided" : "fact"}</span> ${event.text} <span class="note">#${event.seq}</span></summary>
    <pre tabindex="0">${event.kind} ${JSON.stringify(event.json, null, 2)}</pre></details>
  </li>`;
  const head = isLong ? events.slice(0, EVENTS) : events;
  const tail = isLong ? events.slice(-EVENTS) : [];
  return html`<h3>Events</h3><ol class="events">
    ${head.map(item)}
    ${isLong && html`<li class="gap"><button type="button" onClick=${() => setAll(true)}>Show ${count(hidden)} more events</button></li>`}
    ${!isLong && answer.events_left_out > 0 && html`<li class="gap note">${count(answer.events_left_out)} events in the middle are left out: the history has all</li>`}
    ${tail.map(item)}
  </ol>`;
}

function Measures({ answer, run, since }) {
  const measured = answer.measures;
  const attempt = answer.attempt;
  const currency = run.head.value?.summary.currency;
  const kept = attempt.kept;
  const facts = [
    ["first progress", percent(measured.first_progress)],
    ["last progress", measured.progress === null ? "" : html`${percent(measured.progress)}${measured.reported_at === null ? "" : html`<span class="of"> at </span>${since(measured.reported_at)}`}`],
    ["kept of its work", kept === null || attempt.ended_at === null ? "" : kept.low === kept.high ? percent(kept.low) : `${percent(kept.low)} to ${percent(kept.high)}`],
    ["exit code", measured.exit_code === null ? "" : String(measured.exit_code)],
    ["signal", measured.signal === null ? "" : String(measured.signal)],
    ["CPU", measured.cpu_seconds === null ? "" : duration(measured.cpu_seconds)],
    ["memory peak", bytes(measured.max_rss)],
    ["ran", measured.seconds === null ? "" : duration(measured.seconds)],
    ["share of its node", attempt.share === null ? "" : percent(attempt.share)],
    ["cost", attempt.cost === null ? "" : amount(attempt.cost, currency)],
  ].filter(([, value]) => value);
  return html`<h3>Measures</h3>
    ${facts.length === 0 && html`<p class="note">It has not reported anything yet.</p>`}
    <dl class="facts">${facts.map(([term, value]) => html`<div key=${term}><dt>${term}</dt><dd>${value}</dd></div>`)}</dl>
    ${measured.outputs_missing.length > 0 && html`<p>Missing outputs: ${measured.outputs_missing.join(", ")}</p>`}
    ${measured.last_line && html`<p>Last line of its log:</p><pre class="last-line" tabindex="0">${measured.last_line}</pre>`}`;
}
