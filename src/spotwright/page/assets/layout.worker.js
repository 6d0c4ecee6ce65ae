// Places the nodes of a graph, away from the thread that draws. A worker has no import map, so dagre is named by its file.
import dagre from "./vendor/dagre.js";

const MOST_FOR_DAGRE = 150; // its time grows with the square
const GAP = { x: 24, y: 56 };

self.addEventListener("message", ({ data }) => {
  const { number, nodes, edges, width, height } = data;
  const placed = nodes.length <= MOST_FOR_DAGRE ? byDagre(nodes, edges, width, height) : byDepth(nodes, edges, width, height);
  self.postMessage({ number, ...placed });
});

function byDagre(nodes, edges, width, height) {
  const names = new Map(nodes.map((id, index) => [id, `n${index}`])); // dagre's objects have names as "constructor" already
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({ rankdir: "TB", nodesep: GAP.x, ranksep: GAP.y, marginx: 8, marginy: 8 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const name of names.values()) graph.setNode(name, { width, height });
  for (const [from, to] of edges) graph.setEdge(names.get(from), names.get(to));
  dagre.layout(graph);
  const size = graph.graph();
  return {
    width: size.width,
    height: size.height,
    places: [...names.values()].map((name) => [graph.node(name).x - width / 2, graph.node(name).y - height / 2]),
    lines: edges.map(([from, to]) => graph.edge(names.get(from), names.get(to)).points.map(({ x, y }) => [x, y])),
  };
}

// Rows by the longest path from a beginning; linear in nodes and edges.
function byDepth(nodes, edges, width, height) {
  const depth = new Map(nodes.map((id) => [id, 0]));
  const after = new Map(nodes.map((id) => [id, []]));
  const missing = new Map(nodes.map((id) => [id, 0]));
  for (const [from, to] of edges) {
    after.get(from)?.push(to);
    missing.set(to, (missing.get(to) ?? 0) + 1);
  }
  const ready = nodes.filter((id) => !missing.get(id));
  for (let index = 0; index < ready.length; index++) {
    for (const next of after.get(ready[index])) {
      depth.set(next, Math.max(depth.get(next), depth.get(ready[index]) + 1));
      missing.set(next, missing.get(next) - 1);
      if (!missing.get(next)) ready.push(next);
    }
  }
  const filled = new Map();
  const places = nodes.map((id) => {
    const column = filled.get(depth.get(id)) ?? 0;
    filled.set(depth.get(id), column + 1);
    return [8 + column * (width + GAP.x), 8 + depth.get(id) * (height + GAP.y)];
  });
  const at = new Map(nodes.map((id, index) => [id, places[index]]));
  return {
    width: 16 + Math.max(1, ...filled.values()) * (width + GAP.x),
    height: 16 + filled.size * (height + GAP.y),
    places,
    lines: edges.map(([from, to]) => [
      [at.get(from)[0] + width / 2, at.get(from)[1] + height],
      [at.get(to)[0] + width / 2, at.get(to)[1]],
    ]),
  };
}
