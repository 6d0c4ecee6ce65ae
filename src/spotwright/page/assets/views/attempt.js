// Why an attempt ended, with the evidence, and its log.
import { html } from "htm/preact";
import { useEffect, useState } from "preact/hooks";
import { get, runPath } from "../api.js";
import { Loading, Problem } from "../parts/common.js";
import { route } from "../routes.js";
import { causeText } from "../words.js";

export function Attempt({ run }) {
  const task = route.value.params.get("task") ?? "";
  const n = route.value.params.get("n") ?? "1";
  const [answer, setAnswer] = useState(null);
  const [log, setLog] = useState(null);
  const [error, setError] = useState(null);
  useEffect(() => {
    get(runPath(run.name, "attempt"), { task, n }).then(setAnswer, setError);
    get(runPath(run.name, "log"), { task, n }).then(setLog, setError);
  }, [task, n]);
  if (error) return html`<${Problem} error=${error} />`;
  if (!answer) return html`<${Loading} what="the attempt" />`;
  const attempt = answer.attempt;
  return html`<section class="view" aria-label="Attempt">
    <h2>${task}, attempt ${attempt.number}: ${causeText(attempt.cause)}</h2>
    <p>${attempt.why}</p><p>${attempt.next}</p>
    <pre>${log?.lines.map((line) => `${line.parts.map(([text]) => text).join("")}\n`)}</pre>
  </section>`;
}
