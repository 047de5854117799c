// What can be asked of a run and of a config, and the dialog that says what it does before it does it.

import { act, preview } from "./api.js";
import { explain, make } from "./format.js";

const OVER = "the run is over";

function refusal(run) {
  if (!run.run.mine) return `the run belongs to ${run.run.owner}`;
  if (run.run.topology === "inline" && run.live) return "the run uses its caller's session alone, which no other can reach";
  return null;
}

export function runActions(run) {
  const { status } = run.run;
  const no = refusal(run);
  const on = run.live ? no : no ?? OVER;
  const found = [];
  if (status === "running") found.push({ action: "pause", label: "Pause", why: on });
  if (["paused", "interrupted", "failed"].includes(status)) {
    const none = status === "failed" && run.run.configs === run.run.failed_configs ? "each of its configs failed" : null;
    found.push({ action: "resume", label: "Resume", why: no ?? none });
  }
  if (run.live) {
    found.push({ action: "add_table", label: "Add configs", why: on });
    found.push({ action: "add_space", label: "Add a grid", why: on });
    found.push({ action: "stop", label: "Stop", why: on, danger: true });
  } else {
    if (status === "finished") found.push({ action: "go_on", label: "Go on", why: no });
    found.push({ action: "forget", label: "Forget", why: no, danger: true });
  }
  return found;
}

export function configActions(run, config) {
  const folded = run.run.folds ? "each fold of it has a number of its own, in cerebro.progress: cerebro.stop_config and the like take that" : null;
  const on = run.live ? (refusal(run) ?? folded) : OVER;
  const gone = { deleted: "it is deleted", failed: "it has failed" }[config.status] ?? null;
  const stopped = config.status === "stopped";
  return [
    stopped
      ? { action: "resume_config", label: "Resume", why: on }
      : { action: "stop_config", label: "Stop", why: on ?? gone ?? (config.status === "finished" ? "it has finished" : null) },
    { action: "clone_config", label: "Clone", why: on ?? gone },
    { action: "set_epochs", label: "Epochs", why: on ?? gone },
    { action: "delete_config", label: "Delete", why: on ?? gone, danger: true },
  ];
}

const TITLES = {
  pause: () => "Pause the run",
  resume: () => "Resume the run",
  stop: () => "Stop the run",
  go_on: () => "Go on with its models",
  forget: () => "Forget the run",
  add_table: () => "Add the configs of a table",
  add_space: () => "Add configs from a grid",
  stop_config: (c) => `Stop config ${c.mst_key}`,
  resume_config: (c) => `Resume config ${c.mst_key}`,
  clone_config: (c) => `Clone config ${c.mst_key}`,
  set_epochs: (c) => `Epochs of config ${c.mst_key}`,
  delete_config: (c) => `Delete config ${c.mst_key}`,
};
const GRID = "{'loss': ['categorical_crossentropy'], 'metrics': ['accuracy'],\n 'optimizer_params_list': [{'optimizer': ['Adam'], 'learning_rate': [0.01, 0.001]}]}";

// [name, label, kind, value]; what is changed here is what is sent.
function fields(action, run, config) {
  switch (action) {
    case "clone_config":
      return [
        ["compile_params", "Compile parameters", "text", config.compile_params],
        ["fit_params", "Fit parameters", "text", config.fit_params],
        ["with_state", "With its state after its last whole epoch", "check", true],
      ];
    case "go_on":
      return [["epochs", "More epochs", "integer", run.run.epochs]];
    case "set_epochs":
      return [["epochs", "Epochs in all", "integer", config.epochs]];
    case "add_table":
      return [["model_selection_table", "Model selection table", "line", ""]];
    case "add_space":
      return [
        ["model_id_list", "Architectures (model_id)", "integers", [...new Set(run.configs.map((c) => c.model_id))].join(", ")],
        ["compile_params_grid", "Grid of compile parameters", "text", GRID],
        ["fit_params_grid", "Grid of fit parameters", "text", "{'batch_size': [32]}"],
        ["num_configs", "Draw so many at random (empty: every combination)", "integer?", ""],
        ["random_state", "Seed of the draw", "integer?", ""],
      ];
    default:
      return [];
  }
}

const INPUTS = {
  text: (value) => make("textarea", { value, rows: 3, spellcheck: false }),
  line: (value) => make("input", { value, required: true, spellcheck: false, autocomplete: "off" }),
  check: (value) => make("input", { type: "checkbox", checked: value }),
  integer: (value) => make("input", { type: "number", step: 1, min: 1, value, required: true }),
  "integer?": (value) => make("input", { type: "number", step: 1, value }),
  integers: (value) => make("input", { value, required: true, pattern: "[0-9]+( *, *[0-9]+)*", title: "numbers, with commas" }),
};

const READ = {
  check: (input) => input.checked,
  integer: (input) => Number(input.value),
  "integer?": (input) => (input.value === "" ? null : Number(input.value)),
  integers: (input) => input.value.split(",").map(Number),
};

export class Asking {
  constructor(tell, done) {
    this.dialog = document.getElementById("ask");
    this.tell = tell;
    this.done = done;
  }

  open(action, run, config = null) {
    this.action = action;
    this.run = run;
    this.config = config;
    this.inputs = fields(action, run, config).map(([name, label, kind, value]) => ({ name, label, kind, input: INPUTS[kind](value) }));
    this.dialog.replaceChildren(this.form());
    this.dialog.showModal();
    if (this.inputs.length) this.inputs[0].input.focus();
    else this.cancel.focus();
    this.foresee();
  }

  form() {
    const danger = /stop$|delete|forget/.test(this.action);
    this.says = make("p", {});
    this.sql = make("pre", {});
    this.problem = make("p", { className: "problem", role: "alert", hidden: true });
    this.cancel = make("button", { type: "button", textContent: "Cancel" });
    this.go = make("button", { className: `primary${danger ? " danger" : ""}`, textContent: TITLES[this.action](this.config).replace(/ config \d+$/, "") });
    this.cancel.addEventListener("click", () => this.dialog.close());
    const form = make("form", { method: "dialog" },
      make("h2", { textContent: TITLES[this.action](this.config) }),
      ...this.inputs.map(({ label, kind, input }) => make("label", { className: "field" }, ...(kind === "check" ? [input, ` ${label}`] : [label, input]))),
      this.says, this.sql, this.problem, make("div", { className: "buttons" }, this.cancel, this.go));
    form.addEventListener("input", () => this.foreseeSoon());
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.carryOut();
    });
    return form;
  }

  given() {
    const values = this.inputs.map(({ name, kind, input }) => [name, (READ[kind] ?? ((one) => one.value))(input)]);
    const given = Object.fromEntries(values);
    if (this.config) given.config = this.config.mst_key;
    if (this.action === "add_space") given.search_type = given.num_configs === null ? "grid" : "random";
    return given;
  }

  foreseeSoon() {
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => this.foresee(), 250);
  }

  async foresee() {
    const asked = (this.asked = Symbol("the newest question"));
    const complete = this.dialog.querySelector("form").checkValidity();
    this.go.disabled = !complete;
    if (!complete) return this.showPreview({ says: "", sql: "" });
    const answer = await preview(this.run.id, this.action, this.given()).then(
      (found) => () => this.showPreview(found),
      (trouble) => () => this.showProblem(trouble),
    );
    // What the server says of the deed itself is not to be covered by what was foreseen before.
    if (asked === this.asked) answer();
  }

  showPreview({ says, sql }) {
    this.says.textContent = says;
    this.sql.textContent = sql;
    this.sql.hidden = !sql;
    this.problem.hidden = true;
  }

  showProblem(trouble) {
    this.problem.textContent = explain(trouble);
    this.problem.hidden = false;
  }

  async carryOut() {
    clearTimeout(this.waiting);
    this.asked = null;
    this.go.disabled = true;
    this.go.setAttribute("aria-busy", "true");
    try {
      const { results } = await act(this.run.id, this.action, this.given());
      this.dialog.close();
      this.tell(told(this.action, this.config, results));
      this.done(this.action);
    } catch (trouble) {
      this.showProblem(trouble);
    } finally {
      this.go.disabled = false;
      this.go.removeAttribute("aria-busy");
    }
  }
}

function told(action, config, results) {
  if (results.length) return `new: config ${results.join(", ")}`;
  const asked = TITLES[action](config);
  return `asked: ${asked.charAt(0).toLowerCase()}${asked.slice(1)}`;
}
