// The frame: header, theme, the view of the address, and what is read out.
import { html } from "htm/preact";
import { render } from "preact";
import { effect, signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { get } from "./api.js";
import { said } from "./parts/common.js";
import { href, route } from "./routes.js";
import { Runs } from "./views/runs.js";
import { RunPage } from "./views/run.js";

const THEMES = ["system", "light", "dark"];
const stored = () => {
  try {
    return localStorage.getItem("spotwright-theme");
  } catch {
    return null; // a browser that keeps nothing
  }
};
const theme = signal(THEMES.includes(stored()) ? stored() : "system");
effect(() => {
  document.documentElement.dataset.theme = theme.value;
  try {
    localStorage.setItem("spotwright-theme", theme.value);
  } catch {
    // nothing is kept, and the theme holds for this window
  }
});

const about = signal(null);
get("about").then(
  (answer) => (about.value = answer),
  () => {}, // the view itself says what is wrong
);

const other = signal(null); // the views that load when they are opened
const OTHERS = {
  pools: () => import("./views/pools.js").then((module) => module.Pools),
  rehearsals: () => import("./views/rehearsals.js").then((module) => module.Rehearsals),
  totals: () => import("./views/totals.js").then((module) => module.TotalsView),
};

function Header() {
  const { view, run } = route.value;
  const current = (name) => (name === (run ? "runs" : view) ? (run ? "true" : "page") : undefined);
  return html`<header class="bar">
    <a class="skip" href="#app" onClick=${skip}>Skip to content</a>
    <a class="brand" href=${href("runs")}>Spotwright</a>
    <nav aria-label="Page">
      <a href=${href("runs")} aria-current=${current("runs")}>Runs</a>
      <a href=${href("pools")} aria-current=${current("pools")}>Pools</a>
      <a href=${href("totals")} aria-current=${current("totals")}>Totals</a>
      ${about.value?.source === "state" && html`<a href=${href("rehearsals")} aria-current=${current("rehearsals")}>Rehearsals</a>`}
    </nav>
    <span class="place" title=${about.value?.place}>${about.value ? (about.value.source === "cluster" ? `cluster ${about.value.place}` : about.value.place) : ""}</span>
    <label class="theme">Theme <select value=${theme.value} onChange=${(event) => (theme.value = event.currentTarget.value)}>
      ${THEMES.map((name) => html`<option value=${name}>${name}</option>`)}
    </select></label>
  </header>`;
}

function skip(event) {
  event.preventDefault();
  const main = document.querySelector("main");
  main?.setAttribute("tabindex", "-1");
  main?.focus();
}

function App() {
  const { view, run } = route.value;
  useEffect(() => {
    if (!run) document.title = "Spotwright";
    other.value = null;
    if (!run && OTHERS[view]) OTHERS[view]().then((component) => (other.value = { view, component }));
  }, [view, run]);
  let part;
  if (run) part = html`<${RunPage} />`;
  else if (view === "runs") part = html`<${Runs} />`;
  else if (other.value?.view === view) part = html`<${other.value.component} />`;
  else part = html`<main class="view"><h1>${OTHERS[view] ? "" : "View not found"}</h1></main>`;
  return html`<${Header} />${part}<div class="said" aria-live="polite">${said.value}</div>`;
}

// Browsers look for the icon again at every address, and the document's own address of it is relative to the first one.
const icon = document.querySelector("link[rel=icon]");
icon.href = new URL(icon.href).href;

const place = document.getElementById("app");
place.replaceChildren();
render(html`<${App} />`, place);
