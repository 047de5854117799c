// The leaderboard and the config that is chosen in it. Rows are kept and changed in place, so that nothing blinks
// and the focus stays where it is.

import { brief, duration, make, number, setText } from "./format.js";
import { configActions } from "./actions.js";

// What it is called, how it is set, what it says, and by what it is sorted. The value stands where a phone shows it.
const loss = (c) => (c.value === null ? c.visit_loss : c.loss);
const FIXED = [
  ["rank", "number", (c) => (c.value === null ? "" : String(c.rank ?? "")), (c) => (c.value === null ? null : c.rank)],
  ["value", "number", (c) => number(c.value), (c) => c.value],
  ["config", "", null, (c) => numbered(c)],
  ["status", "", null, (c) => c.status],
  ["epoch", "number", (c) => `${c.epoch ?? 0}/${c.epochs ?? 0}`, (c) => c.visits_done],
  ["best", "number", (c) => number(c.best_value), (c) => c.best_value],
  ["loss", "number", (c) => number(loss(c)), loss],
];
const CONFIG = FIXED.findIndex(([name]) => name === "config");
const STATUS = FIXED.findIndex(([name]) => name === "status");
// Of a cross-validated run, how much its folds differ.
const FOLDED = [
  ["deviation", "number", (c) => number(c.deviation), (c) => c.deviation],
  ["folds", "", (c) => (c.fold_values ?? "").split(", ").map((value) => brief(value)).join(", "), (c) => c.fold_values],
];
const OUT = ["failed", "deleted", "stopped"];

export class Board {
  constructor(choose, ask, look) {
    this.table = document.getElementById("board");
    this.body = this.table.tBodies[0];
    this.panel = document.getElementById("config");
    this.filter = document.getElementById("filter");
    this.choose = choose;
    this.ask = ask;
    this.look = look;
    this.rows = new Map();
    this.only = null;
    this.sorted = { column: 0, down: false };
    this.filter.addEventListener("input", () => this.show(this.run, this.chosen));
    this.body.addEventListener("click", (event) => {
      const row = event.target.closest("tr");
      if (row) choose(Number(row.dataset.key));
    });
    this.body.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        choose(Number(event.target.dataset.key));
      }
    });
  }

  show(run, chosen) {
    if (!run?.run) return;
    if (run !== this.run || [run.deciding, ...run.names].join() !== this.names) this.begin(run);
    this.chosen = chosen;
    this.visible = this.inOrder(run.configs.filter((config) => this.wanted(config)));
    const first = this.visible.some((config) => config.mst_key === chosen) ? chosen : this.visible[0]?.mst_key;
    this.visible.forEach((config, place) => this.put(config, place, first));
    while (this.body.rows.length > this.visible.length) this.body.lastElementChild.remove();
    this.showConfig(run.byKey.get(chosen));
  }

  begin(run) {
    this.run = run;
    this.names = [run.deciding, ...run.names].join();
    this.rows.clear();
    this.body.replaceChildren();
    this.fixed = run.run.folds ? [...FIXED, ...FOLDED] : FIXED;
    const names = [...this.fixed.map(([name, kind]) => [name, kind]), ...run.names.map((name) => [name, ""])];
    if (this.sorted.column >= names.length) this.sorted = { column: 0, down: false };
    const heads = names.map(([plain, kind], column) => {
      // The value is headed by the metric that it is.
      const name = plain === "value" ? (run.deciding ?? plain).replace(/^\S+ /, "") : plain;
      const button = make("button", { type: "button", textContent: name, title: `Sort by ${name}` });
      button.addEventListener("click", () => this.sortBy(column));
      return make("th", { className: kind, scope: "col" }, button);
    });
    this.table.tHead.replaceChildren(make("tr", {}, ...heads));
    this.markSorted();
  }

  sortBy(column) {
    const again = this.sorted.column === column;
    this.sorted = { column, down: again && !this.sorted.down };
    this.markSorted();
    this.show(this.run, this.chosen);
  }

  markSorted() {
    const { column, down } = this.sorted;
    [...this.table.tHead.rows[0].cells].forEach((head, place) =>
      place === column ? head.setAttribute("aria-sort", down ? "descending" : "ascending") : head.removeAttribute("aria-sort"));
  }

  // What has nothing in the column comes last, whichever way round.
  inOrder(configs) {
    const { column, down } = this.sorted;
    const named = this.run.names[column - this.fixed.length];
    const key = this.fixed[column]?.[3] ?? ((config) => sortable(this.run.parts.get(config.mst_key)[named]));
    const before = (a, b) => (typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? -1 : 1);
    return configs
      .map((config, place) => ({ config, place, by: key(config) ?? null }))
      .sort((a, b) => (a.by === null) - (b.by === null) || (down ? -1 : 1) * before(a.by, b.by) || a.place - b.place)
      .map(({ config }) => config);
  }

  wanted(config) {
    if (this.only && !this.only.has(config.mst_key)) return false;
    const text = `${numbered(config)} ${config.net ?? ""} ${config.status} ${config.compile_params} ${config.fit_params}`.toLowerCase();
    return this.filter.value.toLowerCase().split(/\s+/).every((word) => text.includes(word));
  }

  put(config, place, tabbable) {
    let row = this.rows.get(config.mst_key);
    if (!row) this.rows.set(config.mst_key, (row = this.newRow(config)));
    if (this.body.rows[place] !== row) {
      const focused = document.activeElement === row;
      this.body.insertBefore(row, this.body.rows[place] ?? null);
      if (focused) row.focus({ preventScroll: true });
    }
    this.fixed.forEach(([, , text], cell) => text && setText(row.cells[cell], text(config)));
    row.cells[CONFIG].firstElementChild.style.background = this.run.colours.get(config.mst_key);
    const status = row.cells[STATUS].firstElementChild;
    setText(status, said(config, this.run));
    status.dataset.status = standing(config, this.run);
    row.toggleAttribute("data-out", OUT.includes(standing(config, this.run)));
    row.setAttribute("aria-selected", String(config.mst_key === this.chosen));
    row.tabIndex = config.mst_key === tabbable ? 0 : -1;
  }

  newRow(config) {
    const key = config.mst_key;
    const row = make("tr", { data: { key } });
    for (const [, kind] of this.fixed) row.append(make("td", { className: kind }));
    row.cells[CONFIG].append(make("span", { className: "dot" }), String(numbered(config)));
    row.cells[STATUS].append(make("span", { className: "chip" }));
    const parts = this.run.parts.get(key);
    for (const name of this.run.names)
      row.append(make("td", { className: "text", textContent: brief(parts[name] ?? ""), title: parts[name] ?? "" }));
    return row;
  }

  // What is shown, in its order, with whole numbers and texts.
  csv() {
    const { configs, parts, names } = this.run;
    const said = ["rank", "mst_key", "status", "epoch", "dataset", "metric", "value", "best_value", "loss", "failure", "compile_params", "fit_params", ...(this.run.run.folds ? ["deviation", "fold_values"] : [])];
    const quoted = (value) => (/[",\r\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
    const line = (values) => values.map((value) => quoted(String(value ?? ""))).join();
    const shown = this.visible ?? configs;
    return [line([...said, ...names]), ...shown.map((c) => line([...said.map((name) => c[name]), ...names.map((name) => parts.get(c.mst_key)[name])]))].join("\r\n") + "\r\n";
  }

  // The next or previous row that is shown, from the one that is chosen.
  step(by) {
    if (!this.visible?.length) return;
    const place = this.visible.findIndex((config) => config.mst_key === this.chosen);
    const to = place < 0 ? (by > 0 ? 0 : this.visible.length - 1) : place + by;
    const config = this.visible[Math.max(0, Math.min(this.visible.length - 1, to))];
    this.choose(config.mst_key, true);
    const row = this.rows.get(config.mst_key);
    row.focus({ preventScroll: true });
    row.scrollIntoView({ block: "nearest" });
  }

  showConfig(config) {
    this.panel.hidden = !config;
    if (!config) return (this.shown = null);
    const now = JSON.stringify([config, this.run.run.status, this.run.run.mine]);
    if (now === this.shown) return;
    this.shown = now;
    const focused = this.panel.contains(document.activeElement) ? document.activeElement.dataset.action : null;
    this.panel.replaceChildren(...this.describe(config));
    if (focused) this.panel.querySelector(`[data-action="${focused}"]`)?.focus();
  }

  describe(config) {
    const buttons = configActions(this.run, config).map(({ action, label, why, danger }) => {
      const button = make("button", { type: "button", textContent: label, disabled: Boolean(why), title: why ?? "" });
      button.dataset.action = action;
      if (danger) button.className = "danger";
      button.addEventListener("click", () => this.ask(action, config));
      return button;
    });
    const none = modelless(this.run, config);
    const looks = [["confusion", "Confusion matrix"], ["predict", "Predict rows"]].map(([what, label]) => {
      const button = make("button", { type: "button", textContent: label, disabled: Boolean(none), title: none ?? "" });
      button.dataset.action = what;
      button.addEventListener("click", () => this.look(what, config));
      return button;
    });
    const close = make("button", { type: "button", textContent: "✕", title: "No config (Esc)", ariaLabel: "No config" });
    close.addEventListener("click", () => this.choose(null));
    const dot = make("span", { className: "dot" });
    dot.style.background = this.run.colours.get(config.mst_key);
    const status = make("span", { className: "chip", textContent: said(config, this.run), data: { status: standing(config, this.run) } });
    return [
      make("div", { className: "head" }, make("strong", {}, dot, `Config ${numbered(config)}`), status,
        make("span", { className: "spring" }), make("div", { className: "actions" }, ...looks, ...buttons, close)),
      make("pre", { textContent: `architecture ${config.model_id}${config.net ? ` (${config.net})` : ""}\n${config.compile_params}\n${config.fit_params}` }),
      make("p", { className: "quiet", textContent: facts(config, this.run.run.segments) }),
      config.failure ? make("p", { className: "problem", textContent: config.failure }) : null,
    ].filter(Boolean);
  }
}

// What a config is called: of groups, each has one of the same number.
const numbered = (config) => config.config_key ?? config.mst_key;

// Why there is nothing that could predict.
function modelless(run, config) {
  if (run.run.groups) return "of groups, in SQL: cerebro.madlib_predict";
  if (run.live) return "its model is there when the run is over";
  if (["failed", "deleted"].includes(config.status)) return `it is ${config.status}, and has no model`;
  return run.run.status === "finished" ? null : "the run has left no models";
}

// Numbers as such, and after them all else.
function sortable(text) {
  if (text === undefined) return null;
  return text !== "" && Number.isFinite(Number(text)) ? Number(text) : text;
}

// How a config stands when all is over: the one that has won is the best, however its search let it end.
function standing(config, run) {
  const isBest = !run.live && config.rank === 1 && config.value !== null;
  if (isBest) return "best";
  return config.status === "stopped" && run.run.search ? "searched" : config.status;
}

function said(config, run) {
  const how = standing(config, run);
  if (how === "best") return how;
  const where = config.segment === null ? "" : ` on ${config.segment}`;
  const asked = config.asked ? ` (asked: ${config.asked.replace("_", " ")})` : "";
  return config.status + where + asked;
}

function facts(config) {
  return [
    `${config.visits_done ?? 0} of ${config.visits_total ?? 0} visits`,
    config.value === null ? null : `${config.metric} ${number(config.value)} on the ${config.dataset} rows after epoch ${config.measured_epoch}`,
    config.best_value === null ? null : `best ${number(config.best_value)} after epoch ${config.best_epoch}`,
    config.cloned_from === null ? null : `cloned from config ${config.cloned_from}`,
    config.seconds_left ? `about ${duration(config.seconds_left)} of work left` : null,
  ].filter(Boolean).join(" · ");
}
