// Some runs side by side: what they were asked for, how far each came, and the curves of their best configs.

import { readCompared } from "./api.js";
import { Curves } from "./charts.js";
import { brief, day, duration, FEW, make, number } from "./format.js";
import { parts } from "./params.js";

const at = (id) => document.getElementById(id);

const FACTS = [
  ["name", ({ run }) => run.name],
  ["status", ({ run }) => run.status],
  ["rows", ({ run }) => run.source_table],
  ["validated on", ({ run }) => run.validation_table],
  ["configs", ({ run }) => run.configs],
  ["epochs", ({ run }) => run.epochs],
  ["search", ({ run }) => run.search],
  ["segments", ({ run }) => run.segments],
  ["seed", ({ run }) => run.seed],
  ["visits", ({ run }) => run.visits_done],
  ["time", ({ run }) => duration(run.seconds)],
  ["begun", ({ run }) => day(run.started_at)],
  ["best config", ({ best }) => best?.mst_key],
  ["decided by", ({ best }) => best && `${best.metric} (${best.dataset})`],
  ["value", ({ best }) => best && number(best.value)],
  ["loss", ({ best }) => best && number(best.loss)],
  ["after epoch", ({ best }) => best?.epoch],
  ["net", ({ best }) => best && (best.net ?? `architecture ${best.model_id}`)],
];

export class Compared {
  constructor() {
    this.ids = [];
    this.curves = new Curves(at("compare-curves"), () => {});
    at("compare-measure").addEventListener("change", () => this.draw());
  }

  async look() {
    const ids = this.ids.join();
    const { runs } = await readCompared(this.ids);
    if (ids !== this.ids.join()) return;
    this.runs = runs;
    document.title = `Runs ${ids.replaceAll(",", ", ")}`;
    this.table();
    this.measures();
    this.draw();
  }

  table() {
    const set = this.runs.map(({ best }) => (best ? parts(best.fit_params, parts(best.compile_params)) : {}));
    const names = [...new Set(set.flatMap(Object.keys))];
    const rows = [
      ...FACTS.map(([name, read]) => [name, this.runs.map((one) => String(read(one) ?? ""))]),
      ...names.map((name) => [name, set.map((one) => brief(one[name] ?? ""))]),
    ].filter(([, values]) => values.some(Boolean));
    const now = JSON.stringify([this.ids, rows]);
    const table = at("compare-table");
    if (table.dataset.now === now) return;
    table.dataset.now = now;
    const heads = this.runs.map(({ run }, place) => {
      const dot = make("span", { className: "dot" });
      dot.style.background = FEW[place];
      return make("th", { scope: "col" }, dot, make("a", { href: `#run=${run.run_id}`, textContent: `Run ${run.run_id}` }));
    });
    table.tHead.replaceChildren(make("tr", {}, make("th", {}), ...heads));
    table.tBodies[0].replaceChildren(...rows.map(([name, values]) => {
      const differ = new Set(values).size > 1;
      return make("tr", {}, make("th", { scope: "row", textContent: name }),
        ...values.map((textContent) => make("td", { textContent, title: textContent, className: differ ? "differs" : "" })));
    }));
  }

  measures() {
    const select = at("compare-measure");
    const names = [...new Set(this.runs.flatMap(({ curves }) => curves.map((row) => `${row.dataset} ${row.metric}`)))];
    if (select.dataset.names === names.join()) return;
    select.dataset.names = names.join();
    select.replaceChildren(...names.map((value) => make("option", { value, textContent: value.replace(/^(\S+) (.*)$/, "$2 ($1)") })));
    const best = this.runs.find((one) => one.best)?.best;
    if (best) select.value = `${best.dataset} ${best.metric}`;
  }

  draw() {
    if (!this.runs) return;
    const measure = at("compare-measure").value;
    const lines = this.runs.map(({ run, curves }) => ({
      key: run.run_id,
      points: curves.filter((row) => `${row.dataset} ${row.metric}` === measure && row.value !== null).map((row) => [row.epoch, row.value, row.epoch]),
    }));
    const colours = new Map(this.runs.map(({ run }, place) => [run.run_id, FEW[place]]));
    this.curves.show({ lines, colours, chosen: null, what: "run", nothing: "nothing is measured yet" });
  }
}
