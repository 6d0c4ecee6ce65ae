// One run in memory: columns as the server sends them, changed in place by what the stream brings.
import { batch, signal } from "@preact/signals";
import { follow, get, runPath } from "./api.js";

// Rows in columns. `words`: what the indexes of a column mean, by column. `version` changes with every change.
export class Columns {
  constructor({ columns, words, seq }) {
    this.seq = seq; // of the last event in it: tables load one after the other, and changes before their own they have already
    this.names = Object.keys(columns);
    this.words = words;
    Object.assign(this, columns);
    this.rows = this.names.length ? columns[this.names[0]].length : 0;
    this.version = signal(0);
  }

  // A delta of the stream: new words, and rows by number with values in the order of the columns.
  change({ words, rows }, seq) {
    if (seq <= this.seq) return;
    this.seq = seq;
    for (const [name, added] of Object.entries(words)) this.words[name].push(...added);
    for (const [key, values] of Object.entries(rows)) {
      const row = Number(key);
      this.names.forEach((name, index) => (this[name][row] = values[index]));
      this.rows = Math.max(this.rows, row + 1);
    }
    this.version.value += 1;
  }

  // The word of a row, or an empty text.
  word(name, row) {
    return this.words[name][this[name][row]] ?? "";
  }
}

export class Run {
  constructor(name) {
    this.name = name;
    this.head = signal(null);
    this.tasks = signal(null);
    this.attempts = signal(null);
    this.nodes = signal(null);
    this.timeline = signal(null);
    this.error = signal(null);
    this.quiet = signal(false); // the stream is interrupted
    this.driven = signal(false);
    this.seq = 0;
    this.made = "";
    this.t0 = 0;
    this.clock = 0; // what the server's clock is ahead of ours, in seconds
    this.stream = null;
    this.closed = false;
  }

  // Seconds since the run's start by the server's clock; of a run without an engine, its last event.
  now() {
    return this.driven.value ? Date.now() / 1000 + this.clock - this.t0 : this.last;
  }

  async load() {
    this.stream?.close();
    this.error.value = null;
    try {
      const [head, tasks, timeline] = await Promise.all([
        get(runPath(this.name)).then((found) => this.begin(found)),
        get(runPath(this.name, "tasks")),
        get(runPath(this.name, "timeline")),
      ]);
      if (this.closed) return;
      if (tasks.made_at !== timeline.made_at) return this.load(); // the rows were numbered anew in between
      const behind = Math.min(tasks.seq, timeline.seq);
      batch(() => {
        if (this.made !== timeline.made_at) this.head.value = head;
        else this.takeHead(head);
        this.made = timeline.made_at;
        this.seq = behind;
        this.t0 = timeline.t0;
        this.place(timeline);
        this.tasks.value = new Columns(tasks);
        this.attempts.value = new Columns({ ...timeline.attempts, seq: timeline.seq });
        this.nodes.value = new Columns({ ...timeline.nodes, seq: timeline.seq });
        this.timeline.value = timeline;
      });
      this.follow();
    } catch (error) {
      this.error.value = error;
    }
  }

  // The head is there before the columns of a large run are.
  begin(head) {
    if (this.head.value === null && !this.closed) {
      batch(() => {
        this.t0 = head.t0;
        this.place(head);
        this.head.value = head;
      });
    }
    return head;
  }

  // A new head; one without its account may come after one that has it. With it comes what lies over the lanes, which changes also
  // without an attempt: nobody drives the run any more.
  takeHead(head) {
    const isPriced = this.head.value.seq === head.seq && this.head.value.summary.cost !== null;
    if (isPriced && head.summary.cost === null) return;
    batch(() => {
      this.head.value = head;
      this.place(head); // the end of the engine has no event
      const lanes = this.timeline.value;
      if (lanes) this.timeline.value = { ...lanes, bands: head.bands, marks: { ...lanes.marks, ...head.marks } };
    });
  }

  place({ now, driven }) {
    this.driven.value = driven;
    this.last = now;
    this.clock = this.t0 + now - Date.now() / 1000;
  }

  follow() {
    this.stream = follow(this.name, () => `${this.made}.${this.seq}`, {
      changes: (changes) => this.change(changes),
      head: (head) => this.takeHead(head),
      reset: () => this.load(),
      gone: (answer) => (this.error.value = Object.assign(new Error(answer.message), { kind: "not-found" })),
      quiet: (value) => (this.quiet.value = value),
    });
  }

  change(changes) {
    if (changes.seq <= this.seq) return;
    batch(() => {
      this.seq = changes.seq;
      this.place(changes);
      for (const kind of ["tasks", "attempts", "nodes"]) {
        if (changes[kind]) this[kind].value.change(changes[kind], changes.seq);
      }
    });
  }

  close() {
    this.closed = true;
    this.stream?.close();
  }
}
