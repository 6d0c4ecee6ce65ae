// What the timeline makes of attempts, as facts for a test. The argument is the address of the module.
async (module) => {
  const marks = await import(module);
  const columns = (rows, words) => ({ rows: rows.length, ...Object.fromEntries(Object.keys(rows[0]).map((name) => [name, rows.map((row) => row[name])])),
    word(name, row) { return words[name]?.[this[name][row]] ?? ""; } });
  const blank = { task: 0, number: 1, pool: 0, node: 0, cause: 0, capacity: 0, placed: 0, bound: 1, noticed: null, goes: null, ended: 2, kept_low: 0, kept_high: 0, due: null, moves: [] };
  const words = { cause: ["interrupted", "succeeded"], capacity: ["spot"], pool: ["p"], node: ["n"], status: ["open"], kind: ["task"] };
  const table = (...rows) => columns(rows.map((row) => ({ ...blank, ...row })), words);
  const nodes = { rows: 0, gone: [], noticed: [] };
  const tasks = columns([{ path: "a", status: 0, kind: 0, retired: 0, why: "", waits: "" }], words);
  const view = { from: 0, to: 1000, width: 500, scale: 0.5 };
  const dense = table(...Array.from({ length: 50 }, (_, n) => ({ number: n + 1, placed: n * 2, bound: n * 2, ended: n * 2 + 1 })));
  const drawn = (attempts, by = "task") => {
    const [lane] = marks.lanesOf({ tasks, attempts, nodes }, by);
    return marks.shapesOf(lane, attempts, nodes, view, 1000);
  };
  const names = (shapes) => shapes.paths.map(([name]) => name);
  return {
    merged: drawn(dense),
    taken: names(drawn(table({ bound: 0, ended: 100 }))),
    unsure: names(drawn(table({ bound: 0, ended: 100, kept_high: 0.5 }))),
    backoff: names(drawn(table({ bound: 0, ended: 100, due: 200, noticed: 90, goes: 100 }))),
    waiting: names(drawn(table({ bound: null, ended: null, cause: -1, moves: [500] }))),
    stacked: marks.lanesOf({ tasks, attempts: table({}, {}, {}), nodes }, "pool")[0].rows,
    counted: names(drawn(table({}, {}, {}, {}, {}), "pool")),
    counts: [...marks.countsOf([0, 1], table({ bound: 0, ended: 500 }, { bound: 250, ended: 1000, cause: 1 }), { from: 0, to: 1000, columns: 4 }, 1000).running],
    ticks: marks.ticksOf({ from: 0, to: 3700, width: 900, scale: 900 / 3700 }).map((tick) => tick.text).slice(0, 4),
    hour: marks.ticksOf({ from: 3000, to: 6600, width: 900, scale: 0.25 }).map((tick) => tick.text)[1],
  };
}
