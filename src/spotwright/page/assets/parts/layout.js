// Asks the layout worker. The one policy of Trusted Types admits this one file.
const file = new URL("../layout.worker.js", import.meta.url).href;
const policy = globalThis.trustedTypes?.createPolicy("spotwright-worker", {
  createScriptURL: (url) => {
    if (url !== file) throw new TypeError("only the layout worker may be started");
    return url;
  },
});

let worker = null;
let asked = 0;
const waiting = new Map();
const kept = new Map(); // by what was asked: a graph is laid out once
const KEPT = 30;

// Where nodes of one size lie: {width, height, places: [[x, y]], lines: [[[x, y]]]}, in the order of nodes and edges.
export function layout(nodes, edges, width, height) {
  const question = JSON.stringify([nodes, edges, width, height]);
  if (kept.has(question)) return kept.get(question);
  if (!worker) {
    worker = new Worker(policy ? policy.createScriptURL(file) : file, { type: "module" });
    worker.addEventListener("message", ({ data }) => {
      waiting.get(data.number)?.resolve(data);
      waiting.delete(data.number);
    });
    worker.addEventListener("error", () => {
      for (const { reject } of waiting.values()) reject(new Error("The graph could not be laid out: load the page again."));
      waiting.clear();
    });
  }
  const number = ++asked;
  const answer = new Promise((resolve, reject) => waiting.set(number, { resolve, reject }));
  worker.postMessage({ number, nodes, edges, width, height });
  kept.set(question, answer);
  answer.catch(() => kept.delete(question));
  if (kept.size > KEPT) kept.delete(kept.keys().next().value);
  return answer;
}
