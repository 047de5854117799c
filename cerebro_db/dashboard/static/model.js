// What the model of a config makes of rows: all of the validation rows, counted; or a few of any table, shown.

import { confusion, predictions, suggestion } from "./api.js";
import { brief, explain, make, many } from "./format.js";

export class Model {
  constructor() {
    this.dialog = document.getElementById("model");
  }

  open(what, run, config) {
    this.asked = Symbol("what is shown");
    this.problem = make("p", { className: "problem", role: "alert", hidden: true });
    this.found = make("div", { className: "scroll" });
    const close = make("button", { type: "button", className: "primary", textContent: "Close" });
    close.addEventListener("click", () => this.dialog.close());
    const title = what === "confusion" ? "Confusion matrix" : "Predict rows";
    const form = what === "confusion" ? [] : [this.form(run, config)];
    this.dialog.replaceChildren(make("h2", { textContent: `${title} of config ${config.mst_key}` }), ...form, this.found, this.problem,
      make("div", { className: "buttons" }, close));
    this.dialog.showModal();
    close.focus();
    if (what === "confusion") this.wait(confusion(run.id, config.mst_key), (found) => this.matrix(found));
  }

  async wait(promise, show) {
    const asked = this.asked;
    this.problem.hidden = true;
    this.found.replaceChildren(make("p", { className: "quiet", textContent: "The server predicts …" }));
    try {
      const answer = await promise;
      if (asked === this.asked) this.found.replaceChildren(...show(answer));
    } catch (trouble) {
      if (asked !== this.asked) return;
      this.found.replaceChildren();
      this.problem.textContent = explain(trouble);
      this.problem.hidden = false;
    }
  }

  matrix({ of, table, cells }) {
    const named = (value) => value ?? "NULL";
    const classes = [...new Set(cells.flatMap((cell) => [named(cell.label), named(cell.predicted)]))].sort(inOrder);
    const counts = new Map(cells.map((cell) => [JSON.stringify([named(cell.label), named(cell.predicted)]), cell.rows]));
    const count = (label, predicted) => counts.get(JSON.stringify([label, predicted])) ?? 0;
    const sum = (list) => list.reduce((a, b) => a + b, 0);
    const all = sum(cells.map((cell) => cell.rows));
    const right = sum(classes.map((one) => count(one, one)));
    const share = (part, whole) => (whole ? `${Math.round((1000 * part) / whole) / 10} %` : "–");
    const rows = classes.map((label) => {
      const total = sum(classes.map((one) => count(label, one)));
      const fields = classes.map((predicted) => {
        const rows = count(label, predicted);
        const field = make("td", { className: "number", textContent: rows || "·", title: `${many(rows, "row")} with the label ${label}, predicted as ${predicted}` });
        field.style.setProperty("--share", total ? rows / total : 0);
        field.dataset.right = String(label === predicted);
        return field;
      });
      return make("tr", {}, make("th", { scope: "row", textContent: label }), ...fields,
        make("td", { className: "number", textContent: total }), make("td", { className: "number", textContent: share(count(label, label), total) }));
    });
    const columns = classes.map((predicted) => share(count(predicted, predicted), sum(classes.map((one) => count(one, predicted)))));
    const head = make("tr", {}, make("th", { textContent: "label ↓ predicted →" }),
      ...[...classes, "rows", "recall"].map((textContent) => make("th", { className: "number", scope: "col", textContent })));
    const foot = make("tr", {}, make("th", { scope: "row", textContent: "precision" }),
      ...[...columns, "", ""].map((textContent) => make("td", { className: "number", textContent })));
    const about = `${right} of ${all} ${of} rows right (${share(right, all)}), of ${table}`;
    return [make("p", { textContent: about }),
      make("table", { className: "matrix" }, make("thead", {}, head), make("tbody", {}, ...rows), make("tfoot", {}, foot))];
  }

  form(run, config) {
    const table = make("input", { required: true, spellcheck: false, autocomplete: "off" });
    const columns = make("input", { required: true, spellcheck: false, autocomplete: "off", title: "As the table was packed: columns, or ARRAY[a, b] for columns that are one vector" });
    const rows = make("input", { type: "number", min: 1, max: 50, step: 1, value: 10, required: true });
    const go = make("button", { className: "primary", textContent: "Predict" });
    const form = make("form", { className: "asked" }, field("Table or view of your own", table), field("Features", columns), field("Rows", rows), go);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const asked = { table: table.value, columns: columns.value, rows: rows.value };
      this.wait(predictions(run.id, config.mst_key, asked), (found) => this.rows(found));
    });
    suggestion(run.id).then((found) => {
      table.value ||= found.table;
      columns.value ||= found.columns;
    }, () => {});
    return form;
  }

  // What the model says stands right behind the row's number, where no scrolling is needed to see it.
  rows({ columns: given, rows: found }) {
    const told = ["class_value", "prob", "prediction"];
    const order = given.map((_, place) => place).sort((a, b) => rank(given[a]) - rank(given[b]) || a - b);
    function rank(name) { return told.includes(name) ? 1 : name === given[0] ? 0 : 2; }
    const columns = order.map((place) => given[place]);
    const rows = found.map((row) => order.map((place) => row[place]));
    const head = make("tr", {}, ...columns.map((name) => make("th", { scope: "col", textContent: name, className: told.includes(name) ? "told-by-model" : "" })));
    const body = rows.map((row) => make("tr", {}, ...row.map((value, place) =>
      make("td", { textContent: brief(value ?? "NULL"), title: value ?? "", className: told.includes(columns[place]) ? "told-by-model text" : "text" }))));
    return [make("table", {}, make("thead", {}, head), make("tbody", {}, ...body))];
  }
}

const field = (label, input) => make("label", { className: "field" }, label, input);

// Numbers by their size.
function inOrder(a, b) {
  const [x, y] = [Number(a), Number(b)];
  return Number.isFinite(x) && Number.isFinite(y) ? x - y : a < b ? -1 : a > b ? 1 : 0;
}
