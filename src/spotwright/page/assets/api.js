// Questions to the server, and the stream of what changes.
import { apiAddress } from "./routes.js";

// An answer that is an error: `kind` for code, `message` for people.
export class Refused extends Error {
  constructor(kind, message) {
    super(message);
    this.kind = kind;
  }
}

export async function get(path, params = {}, options = {}) {
  let response;
  try {
    response = await fetch(apiAddress(path, params), { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused("offline", "The server of this page does not answer: start 'spotwright page' again, and open the address that it prints.");
  }
  let answer;
  try {
    answer = await response.json();
  } catch {
    throw new Refused("answer", `The server answered with status ${response.status} and no document.`);
  }
  if (!response.ok) throw new Refused(answer.error ?? "error", answer.message ?? `status ${response.status}`);
  return answer;
}

export const runPath = (run, what = "") => `runs/${encodeURIComponent(run)}${what ? `/${what}` : ""}`;

// Follows a run while the window is visible. `place()` says how far the window is; handlers by the name of the event.
// A hidden window closes its stream: browsers allow few connections to one server.
export function follow(run, place, handlers) {
  let source = null;
  let ended = false;
  const open = () => {
    if (ended || source || document.hidden) return;
    source = new EventSource(apiAddress("stream", { run, after: place() }));
    for (const [name, handler] of Object.entries(handlers)) {
      source.addEventListener(name, (event) => handler(JSON.parse(event.data)));
    }
    source.addEventListener("reset", () => close());
    source.addEventListener("gone", () => close());
    source.addEventListener("error", () => {
      if (source?.readyState === EventSource.CLOSED) {
        close();
        setTimeout(open, 2000);
      }
      handlers.quiet?.(true);
    });
    source.addEventListener("open", () => handlers.quiet?.(false));
  };
  const close = () => {
    source?.close();
    source = null;
  };
  const visible = () => (document.hidden ? close() : open());
  document.addEventListener("visibilitychange", visible);
  open();
  return {
    open,
    close: () => {
      ended = true;
      document.removeEventListener("visibilitychange", visible);
      close();
    },
  };
}
