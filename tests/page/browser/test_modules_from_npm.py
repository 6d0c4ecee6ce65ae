"""The modules from npm work in Chromium under the page's policy, by the names of an import map."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect
from tests.page.browser.small_site import served, with_modules

COUNTER = """
import {useState} from "preact/hooks";
import {html, render} from "htm/preact";
import {computed, signal, useComputed} from "@preact/signals";
import {effect} from "@preact/signals-core";

const runs = signal(1), twice = computed(() => 2 * runs.value), seen = [];
effect(() => seen.push(runs.value));
function Counter() {
  const [hidden, hide] = useState(false), more = useComputed(() => runs.value + 10);
  return html`<button onClick=${() => runs.value++}>more</button><button onClick=${() => hide(true)}>hide</button>
    ${!hidden && html`<p class="counter">${runs} ${twice.value} ${more} ${seen.join("")}</p>`}`;
}
render(html`<${Counter}/>`, document.getElementById("root"));
"""

GRAPH = """
const files = trustedTypes.createPolicy("spotwright-worker", {createScriptURL: (url) => url});
const worker = new Worker(files.createScriptURL("/layout.worker.js"), {type: "module"});
worker.onmessage = ({data}) => { document.getElementById("root").textContent = data; };
worker.postMessage(import.meta.resolve("@dagrejs/dagre"));
"""
WORKER = """
onmessage = async ({data}) => {
  const {Graph, layout} = await import(data);
  const graph = new Graph().setGraph({}).setDefaultEdgeLabel(() => ({}));
  for (const name of ["a", "b", "c"]) graph.setNode(name, {width: 100, height: 20});
  graph.setEdge("a", "b").setEdge("b", "c");
  layout(graph);
  postMessage(graph.nodes().map((name) => graph.node(name).y).join(" "));
};
"""


def test_preact_htm_and_signals_render_and_follow_changes(open_page: Callable[..., Page]) -> None:
    with served(with_modules(COUNTER)) as url:
        page = open_page(url)
        expect(page.locator(".counter")).to_have_text("1 2 11 1")
        page.get_by_role("button", name="more").click()
        expect(page.locator(".counter")).to_have_text("2 4 12 12")
        page.get_by_role("button", name="hide").click()
        expect(page.locator(".counter")).to_have_count(0)


def test_dagre_lays_out_a_graph_in_a_worker(open_page: Callable[..., Page]) -> None:
    with served(with_modules(GRAPH) | {"/layout.worker.js": WORKER}) as url:
        expect(open_page(url).locator("#root")).to_have_text("10 80 150")
