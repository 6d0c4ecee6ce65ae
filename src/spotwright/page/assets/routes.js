// The address says everything that is shown: view, run, filters, sort, selection. A link copies it, Back takes a step back.
import { signal } from "@preact/signals";

const root = new URL(document.documentElement.dataset.root, location.href).pathname;

function read() {
  const path = location.pathname.slice(root.length);
  const parts = path.split("/").map(decodeURIComponent);
  const params = new URLSearchParams(location.search);
  if (parts[0] === "runs" && parts[1]) return { view: parts[2] || "timeline", run: parts[1], params };
  return { view: parts[0] || "runs", run: "", params };
}

export const route = signal(read());
export const moves = signal(0); // steps from one address to another since the page was loaded

// The address of a view; empty parameters are left out.
export function href(view, run = "", params = {}) {
  const path = run ? `runs/${encodeURIComponent(run)}/${view}` : view === "runs" ? "" : view;
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value !== null && value !== undefined && value !== "") query.set(name, value);
  }
  const text = query.toString();
  return `${root}${path}${text ? `?${text}` : ""}`;
}

// Go to an address of the page. `replace`: without a step in the history, for zoom and filters.
export function go(address, { replace = false } = {}) {
  if (address === location.pathname + location.search) return;
  history[replace ? "replaceState" : "pushState"](null, "", address);
  if (!replace) moves.value += 1;
  route.value = read();
}

// Change parameters of this address.
export function set(params, { replace = true } = {}) {
  const now = Object.fromEntries(route.value.params);
  const { view, run } = route.value;
  go(href(view, run, { ...now, ...params }), { replace });
}

export const apiAddress = (path, params = {}) => {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value !== null && value !== undefined && value !== "") query.set(name, value);
  }
  const text = query.toString();
  return `${root}api/v1/${path}${text ? `?${text}` : ""}`;
};

addEventListener("popstate", () => {
  moves.value += 1;
  route.value = read();
});

// Plain clicks on links of the page stay in the page.
addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const link = event.target.closest?.("a[href]");
  if (!link || link.target || link.hasAttribute("download")) return;
  const url = new URL(link.href);
  if (url.origin !== location.origin || !url.pathname.startsWith(root) || url.pathname.startsWith(`${root}api/`)) return;
  if (url.hash && url.pathname === location.pathname && url.search === location.search) return;
  event.preventDefault();
  go(url.pathname + url.search);
});
