// The page: which run is shown, how often it is asked for, what is done when nobody answers.

import { overview, readPlan, readRun, Trouble } from "./api.js";
import { Compared } from "./compare.js";
import { Model } from "./model.js";
import { Asking, configActions, runActions } from "./actions.js";
import { Board } from "./board.js";
import { Curves, Timeline } from "./charts.js";
import { Forecasts } from "./forecasts.js";
import { Groups, keyText } from "./groups.js";
import { Registered } from "./registered.js";
import { Relations } from "./relations.js";
import { bytes, clock, day, duration, explain, make, many, number, setText, when } from "./format.js";
import { Run } from "./store.js";

const LIVE = 1000;
const QUIET = 4000;
const HIDDEN = 15_000;
const WAITS = [1000, 2000, 3000, 5000];
const MOST_DECISIONS = 300;
const MOST_NOTES = 3;
const MOST_FAILURES = 5;
const MOST_COMPARED = 8;
const NEWEST = 10;
// All that it takes, where nobody has trained yet.
const FIRST_RUN = `CREATE TABLE points AS SELECT ARRAY[x, y] AS xy, (x * x + y * y < 0.5)::int AS inside
FROM (SELECT random() * 2 - 1 AS x, random() * 2 - 1 AS y FROM generate_series(1, 2000)) AS p;
SELECT cerebro.training_preprocessor_dl('points', 'points_packed', 'inside', 'xy');
SELECT cerebro.load_keras_model('nets', '{"module": "keras", "class_name": "Sequential", "config": {"name": "mlp", "layers": [
    {"module": "keras.layers", "class_name": "InputLayer", "config": {"batch_shape": [null, 2]}},
    {"module": "keras.layers", "class_name": "Dense", "config": {"units": 16, "activation": "relu"}},
    {"module": "keras.layers", "class_name": "Dense", "config": {"units": 2, "activation": "softmax"}}]}}', name => 'mlp');
SELECT cerebro.generate_model_configs('nets', 'points_configs', ARRAY[1], $$ {'loss': ['categorical_crossentropy'],
    'metrics': ['accuracy'], 'optimizer_params_list': [{'optimizer': ['Adam'], 'learning_rate': [0.1, 0.01, 0.001]}]} $$,
    $$ {'batch_size': [16, 64]} $$);
SELECT cerebro.madlib_fit_multiple_model('points_packed', 'points_models', 'points_configs', 10,
    metrics_compute_frequency => 1);`;

const at = (id) => document.getElementById(id);
const state = { runs: [], run: null, chosen: null, measure: null, failures: 0, timer: null, turn: 0 };
const curves = new Curves(at("curves"), (key) => choose(key));
const timeline = new Timeline(at("timeline"), (key) => choose(key));
const relations = new Relations(at("relations"), (key) => choose(key), (keys) => keep(keys));
const asking = new Asking(tell, asked);
const model = new Model();
const compared = new Compared();
const registered = new Registered();
const forecasts = new Forecasts();
// What is chosen stands in the address, so that it can be sent to somebody.
const groups = new Groups((key) => (location.hash = key === hash().get("group") ? `run=${state.run.id}` : String(new URLSearchParams({ run: state.run.id, group: key }))), hurt);
const board = new Board(choose, (action, config) => asking.open(action, state.run, config), (what, config) => model.open(what, state.run, config));

// One look at the server, then the next: never two at a time.
async function look() {
  clearTimeout(state.timer);
  const turn = ++state.turn;
  try {
    const found = await overview();
    if (turn !== state.turn) return;
    showRuns(found);
    await (compared.ids.length ? compared.look() : registered.name !== null ? registered.look() : forecasts.name !== null ? forecasts.look() : lookAtRun(turn));
    if (turn !== state.turn) return;
    heal();
  } catch (error) {
    if (turn !== state.turn) return;
    hurt(error);
  }
  const live = state.run?.live || state.runs.some((run) => run.status === "running");
  const wait = state.failures ? WAITS[Math.min(state.failures, WAITS.length) - 1] : live ? LIVE : QUIET;
  state.timer = setTimeout(look, document.hidden ? Math.max(HIDDEN, wait) : wait);
}

async function lookAtRun(turn) {
  const run = state.run;
  if (!run) return;
  try {
    const answer = await readRun(run.id, run.group === null ? run.next : { ...run.next, group: run.group });
    if (turn !== state.turn || run !== state.run) return;
    run.take(answer);
  } catch (error) {
    if (!(error instanceof Trouble) || error.lost || run !== state.run) throw error;
    nothing(error.message, error.hint);
    return;
  }
  showRun();
}

function heal() {
  state.failures = 0;
  at("trouble").hidden = true;
  at("link").dataset.state = "live";
  setText(at("link"), "live");
}

function hurt(error) {
  state.failures++;
  at("link").dataset.state = "lost";
  const lost = !(error instanceof Trouble) || error.lost;
  setText(at("link"), lost ? "no answer" : "refused");
  setText(at("trouble"), `${explain(error)}${lost ? " Trying again; what is shown is from before." : ""}`);
  at("trouble").hidden = false;
  if (!(error instanceof Trouble)) console.error(error);
}

function showRuns({ who, runs: all, models, forecasts: names }) {
  const others = all.filter((run) => !/^"?estimators_/.test(run.model_table ?? ""));
  at("estimators-label").hidden = others.length === all.length;
  const runs = at("estimators").checked ? all : others;
  state.runs = runs;
  state.draws = who.draws;
  setText(at("who"), `${who.role} on ${who.database} · PostgreSQL ${who.server.split(" ")[0]} · cerebro ${who.version}`);
  const list = at("runs");
  runs.forEach((run, place) => {
    const item = list.children[place] ?? list.appendChild(newRunItem());
    fillRunItem(item.firstElementChild, run);
  });
  while (list.children.length > runs.length) list.lastElementChild.remove();
  showMarks();
  compared.ids = hash().get("compare")?.split(",").map(Number) ?? [];
  at("compare").hidden = !compared.ids.length;
  const name = hash().get("model");
  if (name !== registered.name) registered.leave();
  registered.name = name;
  registered.list(models);
  const wish = hash().get("forecast");
  if (wish !== forecasts.name) forecasts.leave();
  forecasts.name = wish;
  forecasts.list(names);
  if (compared.ids.length || name !== null || wish !== null) {
    at("run").hidden = at("nothing").hidden = true;
    state.run = null;
    for (const link of list.querySelectorAll("a")) link.removeAttribute("aria-current");
    return;
  }
  const wanted = Number(hash().get("run")) || runs[0]?.run_id;
  if (!wanted) {
    // One that was shown is gone: it is not asked for again.
    state.run = null;
    return nothing("No run yet", "Begin one and it appears here. This is a first one, to paste into psql:", FIRST_RUN);
  }
  const group = hash().get("group");
  if (state.run?.id !== wanted || state.run.group !== group) begin(wanted, group);
}

const hash = () => new URLSearchParams(location.hash.slice(1));

// Runs that are marked may be compared.
function showMarks() {
  const marked = at("runs").querySelectorAll("input:checked").length;
  at("compare-button").disabled = marked < 2 || marked > MOST_COMPARED;
  setText(at("compare-button"), marked < 2 ? "Compare" : `Compare ${marked}`);
  at("compare-button").title = marked < 2 ? "Mark two runs or more" : marked > MOST_COMPARED ? `${MOST_COMPARED} at most` : "";
}

function newRunItem() {
  const mark = make("input", { type: "checkbox", className: "mark", title: "To be compared" });
  mark.addEventListener("change", showMarks);
  const link = make("a", {}, make("span", { className: "name" }), make("span", { className: "chip" }), make("span", { className: "more" }));
  return make("li", {}, link, mark);
}

function fillRunItem(link, run) {
  const [name, chip, more] = link.children;
  const mark = link.nextElementSibling;
  if (mark.value !== String(run.run_id)) Object.assign(mark, { value: String(run.run_id), checked: false, ariaLabel: `Compare run ${run.run_id}` });
  const href = `#run=${run.run_id}`;
  if (link.getAttribute("href") !== href) link.setAttribute("href", href);
  setText(name, `${run.run_id} · ${run.name ?? (run.model_table ?? "").replace(/^public\./, "")}`);
  setText(chip, run.status);
  chip.dataset.status = run.status;
  const share = run.visits_total ? Math.floor((100 * run.visits_done) / run.visits_total) : 0;
  const whose = run.mine ? "" : `${run.owner} · `;
  setText(more, `${whose}${many(run.configs, "config")} · ${run.status === "running" ? `${share} %` : when(run.started_at)}`);
  link.toggleAttribute("aria-current", run.run_id === state.run?.id);
}

function begin(id, group) {
  state.run = new Run(id, group);
  state.chosen = null;
  state.measure = null;
  relations.begin();
  keep(null);
  at("plan").hidden = true;
  setText(at("plan-button"), "Show");
  for (const link of at("runs").querySelectorAll("a")) link.toggleAttribute("aria-current", link.hash === `#run=${id}`);
}

// Of these configs alone the leaderboard has rows; null for all.
function keep(keys) {
  board.only = keys && new Set(keys);
  at("all").hidden = !keys;
  board.show(state.run, state.chosen);
}

// By what the leaderboard ranks.
function deciding() {
  const { deciding: by, comparedAt } = state.run;
  if (!by) return "nothing is measured yet";
  const words = `by ${by.replace(/^(\S+) (.*)$/, "$2 on the $1 rows")}`;
  return comparedAt === null ? words : `${words}, all after epoch ${comparedAt}`;
}

// Asked for when somebody wants it: it is made anew each time.
async function showPlan() {
  const run = state.run;
  try {
    const { lines } = await readPlan(run.id);
    if (run !== state.run) return;
    setText(at("plan"), lines.join("\n"));
    at("plan").hidden = false;
    setText(at("plan-button"), "Renew");
  } catch (error) {
    hurt(error);
  }
}

function nothing(title, text, command) {
  at("run").hidden = true;
  const box = at("nothing");
  box.hidden = false;
  const now = `${title} ${text} ${command}`;
  if (box.dataset.now === now) return;
  box.dataset.now = now;
  box.replaceChildren(make("h1", { textContent: title }), make("p", { textContent: text ?? "" }), ...(command ? toCopy(command) : []));
}

function toCopy(text) {
  const button = make("button", { type: "button", textContent: "Copy" });
  button.addEventListener("click", () => navigator.clipboard.writeText(text).then(() => tell("copied"), () => tell("the browser lets no page copy here")));
  return [make("pre", { textContent: text }), button];
}

function showRun() {
  const { run } = state.run;
  at("nothing").hidden = true;
  at("run").hidden = false;
  const title = `Run ${run.run_id}${run.name ? ` · ${run.name}` : ""}`;
  setText(at("title"), title);
  document.title = `${run.status}: ${title}`;
  setText(at("status"), run.status);
  at("status").dataset.status = run.status;
  setText(at("about"), about(run));
  showStanding(run);
  setText(at("detail"), run.detail ?? "");
  at("detail").hidden = !run.detail;
  showFailures();
  showRunActions();
  showGroups(run);
  showMeasures();
  draw();
  board.show(state.run, state.chosen);
  setText(at("deciding"), deciding());
  showDecisions();
}

// Of very many configs the page shows those of one group, once it is chosen.
function showGroups(run) {
  const { group } = state.run;
  groups.show(state.run, group);
  const none = Boolean(run.groups) && group === null;
  for (const name of ["curves", "board"]) document.querySelector(`.panel.${name}`).hidden = none;
  for (const name of ["timeline", "relations"]) document.querySelector(`.panel.${name}`).hidden = Boolean(run.groups);
  const of = run.groups && group !== null ? ` of ${keyText(group)}` : "";
  setText(at("curves-title"), `Learning curves${of}`);
  setText(at("board-title"), `Leaderboard${of}`);
}

function showFailures() {
  const failed = state.run.configs.filter((config) => config.failure);
  const list = at("failures");
  list.hidden = !failed.length;
  const lines = failed.slice(0, MOST_FAILURES).map((config) => `config ${config.mst_key} failed: ${config.failure}`);
  if (failed.length > MOST_FAILURES) lines.push(`and ${failed.length - MOST_FAILURES} more, whose rows in the leaderboard say why`);
  if (list.dataset.now === lines.join("\n")) return;
  list.dataset.now = lines.join("\n");
  list.replaceChildren(...lines.map((textContent) => make("li", { textContent })));
}

function about(run) {
  return [
    `${run.source_table} → ${run.model_table ?? "no table"}`,
    run.validation_table ? `validated on ${run.validation_table}` : null,
    run.groups ? `${many(run.groups, "group")}, ${many(run.configs, "model")}` : many(run.folds ? state.run.configs.length : run.configs, "config"),
    run.folds ? `cross-validated in ${many(run.folds, "fold")}` : null,
    many(run.epochs, "epoch"),
    many(run.segments, "segment"),
    run.topology,
    run.search ? run.search.replace("_", " ") : null,
    `seed ${run.seed}`,
    `begun ${day(run.started_at)} by ${run.owner}`,
    run.description,
  ].filter(Boolean).join(" · ");
}

function showStanding(run) {
  // A search or a person may have ended it before the visits that it could have made.
  const share = run.status === "finished" ? 1 : run.visits_total ? run.visits_done / run.visits_total : 0;
  at("bar").style.width = `${100 * share}%`;
  at("bar").dataset.status = run.status;
  at("bar").parentElement.setAttribute("aria-valuenow", String(Math.floor(100 * share)));
  const { best, secondsLeft } = state.run;
  const done = `${run.visits_done} of ${many(run.visits_total, "visit")}`;
  setText(at("standing"), [
    run.status === "finished" ? done : `${done} (${Math.floor(100 * share)} %)`,
    duration(run.seconds),
    secondsLeft === null ? null : `about ${duration(secondsLeft)} left`,
    best && !run.groups ? `best ${best.metric} ${number(best.value)} (config ${best.mst_key})` : null,
    run.failed_configs ? `${run.failed_configs} failed` : null,
    ...costs(state.run.costs),
  ].filter(Boolean).join(" · "));
}

// What the run has taken, and its price where an administrator has set one.
function costs(taken) {
  if (!taken) return [];
  return [
    `${duration(taken.core_seconds)} of cores`,
    taken.gpu_seconds ? `${duration(taken.gpu_seconds)} of GPUs` : null,
    `${bytes(taken.moved_bytes)} moved`,
    `${bytes(taken.stored_bytes)} stored`,
    taken.price === null ? null : `price ${number(taken.price)}`,
    taken.watt_hours === null ? null : `${number(taken.watt_hours)} Wh`,
  ];
}

function showRunActions() {
  const actions = runActions(state.run);
  const now = JSON.stringify(actions);
  const box = at("run-actions");
  if (box.dataset.now === now) return;
  box.dataset.now = now;
  box.replaceChildren(...actions.map(({ action, label, why, danger }) => {
    const button = make("button", { type: "button", textContent: label, disabled: Boolean(why), title: why ?? "", className: danger ? "danger" : "" });
    button.addEventListener("click", () => asking.open(action, state.run));
    return button;
  }), ...(state.run.live ? [] : [report()]));
}

function report() {
  if (!state.draws) return make("button", { type: "button", textContent: "Report", disabled: true, title: "where the page runs, the packages of the extra plot are not installed" });
  return make("a", { className: "button", href: `/api/runs/${state.run.id}/report`, textContent: "Report", title: "One HTML file of this run" });
}

// By default what the leaderboard goes by, once it makes a line; until then the losses of the visits.
function showMeasures() {
  const select = at("measure");
  const names = ["visits", ...state.run.metrics.keys()];
  if (select.dataset.names !== names.join()) {
    select.dataset.names = names.join();
    const label = (name) => (name === "visits" ? "loss of each visit" : name.replace(/^(\S+) (.*)$/, "$2 ($1)"));
    select.replaceChildren(...names.map((name) => make("option", { value: name, textContent: label(name) })));
  }
  const { deciding } = state.run;
  const measured = deciding && state.run.lines(deciding).some((line) => line.points.length > 1);
  select.value = state.measure ?? (measured ? deciding : "visits");
}

function draw() {
  const { run, colours } = state.run;
  const measure = at("measure").value;
  const byTime = at("across").value === "time";
  curves.show({ lines: state.run.lines(measure, byTime), byTime, what: "config", colours, chosen: state.chosen, log: at("log").checked, smooth: Number(at("smooth").value), nothing: "nothing is measured yet" });
  showRelations();
  drawTimeline(run, colours);
}

function showRelations() {
  const select = at("relation");
  const { names } = state.run;
  if (select.dataset.names !== names.join()) {
    select.dataset.names = names.join();
    const options = [["all", "all, side by side"], ["importance", "how much each explains"], ["history", "config after config"], ...names.map((name) => [name, name])];
    select.replaceChildren(...options.map(([value, textContent]) => make("option", { value, textContent })));
    at("against").replaceChildren(...[["", "the value"], ...names.map((name) => [name, name])].map(([value, textContent]) => make("option", { value, textContent })));
  }
  at("against-label").hidden = !names.includes(select.value);
  relations.show({ run: state.run, kind: select.value, against: at("against").value, chosen: state.chosen });
}

function drawTimeline(run, colours) {
  const visits = [...state.run.visits.values()];
  const last = new Map();
  for (const visit of visits) last.set(visit.segment, Math.max(last.get(visit.segment) ?? 0, visit.ended_at));
  const working = state.run.configs
    .filter((config) => config.segment !== null && state.run.live)
    .map((config) => ({ mst_key: config.mst_key, segment: config.segment, started_at: last.get(config.segment) ?? run.started_at, loss: null }));
  const sessions = state.run.sessions;
  timeline.show({ show: at("used").value, sessions, visits, working, segments: run.segments, begin: run.started_at, now: state.run.now, span: Number(at("span").value), colours, chosen: state.chosen });
  const doing = working.sort((a, b) => a.segment - b.segment).map((one) => `segment ${one.segment}: config ${one.mst_key}`);
  showSessions(sessions);
  setText(at("now"), doing.length ? `Now on ${doing.join(", ")}` : state.run.live ? "Between visits" : "");
}

// Over the last visits.
function showSessions(sessions) {
  const said = [...sessions].map(([segment, uses]) => {
    const newest = uses.slice(-NEWEST);
    const seconds = newest.reduce((sum, use) => sum + use.to - use.from, 0);
    const computed = newest.reduce((sum, use) => sum + use.cpu * (use.to - use.from), 0);
    const share = `segment ${segment}: ${Math.round((100 * computed) / Math.max(seconds, 0.001))} % of a core`;
    return [share, bytes(newest.at(-1).memory)].filter(Boolean).join(", ");
  });
  setText(at("sessions"), said.join(" · "));
}

function showDecisions() {
  const { decisions } = state.run;
  const list = at("decisions");
  if (list.dataset.now === `${state.run.id} ${decisions.length}`) return;
  list.dataset.now = `${state.run.id} ${decisions.length}`;
  const newest = decisions.slice(-MOST_DECISIONS).reverse();
  list.replaceChildren(...newest.map((one) => make("li", {},
    make("span", { className: "quiet", textContent: clock(one.at) }),
    make("span", { textContent: one.mst_key === null ? "the run" : `config ${one.mst_key}` }),
    make("strong", { textContent: one.decision.replace("_", " ") }),
    make("span", { className: "why", textContent: why(one) }))));
  const shown = decisions.length > MOST_DECISIONS ? `, the newest ${MOST_DECISIONS} are shown` : "";
  setText(at("decisions-count"), decisions.length ? `${decisions.length}${shown}` : "none: no search, no budget and no person has decided anything");
}

function why(one) {
  const until = one.epochs === null ? null : `until epoch ${one.epochs}`;
  return [one.decided_by ? `by ${one.decided_by}` : null, one.reason, until].filter(Boolean).join(" · ");
}

function choose(key, keep = false) {
  state.chosen = key === state.chosen && !keep ? null : key;
  if (!state.run?.run) return;
  draw();
  board.show(state.run, state.chosen);
}

function asked(action) {
  if (["forget", "go_on"].includes(action)) location.hash = "";
  look();
}

function tell(text) {
  const note = make("div", { textContent: text });
  at("told").append(note);
  if (at("told").children.length > MOST_NOTES) at("told").firstElementChild.remove();
  setTimeout(() => note.remove(), 6000);
}

function toggleTheme() {
  const dark = document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  setTheme(dark === "dark" ? "light" : "dark");
  localStorage.setItem("theme", document.documentElement.dataset.theme);
}

function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  curves.draw();
  timeline.draw();
  relations.draw();
  compared.curves.draw();
  forecasts.chart.draw();
}

function neighbour(by) {
  const place = state.runs.findIndex((run) => run.run_id === state.run?.id);
  const to = state.runs[place + by];
  if (to) location.hash = `run=${to.run_id}`;
}

const CONFIG_KEYS = { s: "stop_config", r: "resume_config", c: "clone_config", e: "set_epochs", d: "delete_config" };
const KEYS = {
  j: () => board.step(1),
  k: () => board.step(-1),
  Escape: () => choose(null),
  n: () => neighbour(-1),
  p: () => neighbour(1),
  t: toggleTheme,
  "/": () => at("filter").focus(),
  "?": () => at("help").showModal(),
};

addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, textarea, select");
  if (event.key === "Escape" && typing) return typing.blur();
  if (typing || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const config = state.run?.byKey.get(state.chosen);
  const action = config && configActions(state.run, config).find((one) => one.action === CONFIG_KEYS[event.key] && !one.why);
  const arrow = event.target.closest("#board") && { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const does = arrow ? () => board.step(arrow) : action ? () => asking.open(action.action, state.run, config) : KEYS[event.key];
  if (!does) return;
  event.preventDefault();
  does();
});
addEventListener("hashchange", look);
document.addEventListener("visibilitychange", () => document.hidden || look());
at("theme").addEventListener("click", toggleTheme);
at("plan-button").addEventListener("click", showPlan);
at("help-button").addEventListener("click", () => at("help").showModal());
for (const name of ["span", "log", "smooth", "relation", "against", "across", "used"]) at(name).addEventListener("change", () => draw());
at("all").addEventListener("click", () => (relations.begin(), keep(null), relations.draw()));
at("compare-button").addEventListener("click", () => {
  const marked = [...at("runs").querySelectorAll("input:checked")].map((mark) => mark.value);
  location.hash = `compare=${marked.join()}`;
});
at("csv").addEventListener("click", () => {
  const link = make("a", { href: URL.createObjectURL(new Blob([board.csv()], { type: "text/csv" })), download: `run-${state.run.id}.csv` });
  link.click();
  URL.revokeObjectURL(link.href);
});
at("estimators").addEventListener("change", () => {
  localStorage.setItem("estimators", at("estimators").checked ? "shown" : "hidden");
  look();
});
at("estimators").checked = localStorage.getItem("estimators") !== "hidden";
at("measure").addEventListener("change", () => {
  state.measure = at("measure").value;
  draw();
});
if (matchMedia("(max-width: 820px)").matches) at("runs-fold").open = false;
setTheme(localStorage.getItem("theme"));
look();
