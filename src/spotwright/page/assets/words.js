// The words, letters and classes of statuses and causes. A colour is never the only sign: each cause has a letter too.
// The sentences come from spotwright.views.text.

export const CAUSES = {
  succeeded: { letter: "S", text: "succeeded" },
  failed: { letter: "F", text: "failed" },
  interrupted: { letter: "I", text: "was interrupted" },
  lost: { letter: "L", text: "was lost" },
  disrupted: { letter: "M", text: "was moved" },
  "out of memory": { letter: "O", text: "ran out of memory" },
  "timed out": { letter: "T", text: "timed out" },
  "start-up": { letter: "U", text: "could not start" },
  unschedulable: { letter: "N", text: "found no node" },
  cancelled: { letter: "C", text: "was stopped" },
  running: { letter: "R", text: "runs" },
  pending: { letter: "P", text: "waits for a node" },
};

export const causeText = (cause) => (cause ? (CAUSES[cause]?.text ?? cause) : "");
export const causeLetter = (cause) => CAUSES[cause]?.letter ?? "?";

// A class for CSS from a word of the server, never anything else.
export const classOf = (kind, word) => `${kind}-${String(word ?? "").replace(/[^a-z0-9-]/gi, "-")}`;
