// The groups of a run: how their results are spread, and a table that the server sorts, searches and pages.

import { readGroups } from "./api.js";
import { make, many, number, setText } from "./format.js";

const BARS = 40;
const PAGE = 50;
// While a run goes on they are asked for again after so long; there may be very many.
const AGAIN = 5000;
const SETTLES = 300;
// What a column is called, what the server sorts by, and what it says.
const COLUMNS = [
  ["rows", "rows", "number", (group) => String(group.rows ?? "")],
  ["status", "status", "", (group) => group.status],
  ["config", "mst_key", "number", (group) => String(group.mst_key ?? "")],
  ["value", "value", "number", (group) => number(group.value)],
  ["best", "best_value", "number", (group) => number(group.best_value)],
  ["loss", "loss", "number", (group) => number(group.loss)],
  ["epoch", "epoch", "number", (group) => String(group.epoch ?? "")],
  ["reason", "", "text", (group) => group.reason ?? ""],
];
const at = (id) => document.getElementById(id);

export class Groups {
  // `choose` is told of a group's key; the models of all rows have an empty one.
  constructor(choose, hurt) {
    this.choose = choose;
    this.hurt = hurt;
    this.id = null;
    this.body = at("groups-table").tBodies[0];
    at("groups-filter").addEventListener("input", () => {
      clearTimeout(this.settling);
      this.settling = setTimeout(() => this.ask({ search: at("groups-filter").value, offset: 0 }), SETTLES);
    });
    at("groups-before").addEventListener("click", () => this.ask({ offset: Math.max(0, this.asked.offset - PAGE) }));
    at("groups-after").addEventListener("click", () => this.ask({ offset: this.asked.offset + PAGE }));
    const chosen = (event) => {
      const row = event.target.closest("tr");
      if (row) this.choose(row.dataset.key);
    };
    this.body.addEventListener("click", chosen);
    this.body.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      chosen(event);
    });
  }

  // Called at each look at the run; what stands here is asked for again when it may have changed.
  show(run, group) {
    at("groups").hidden = !run.run.groups;
    this.group = group;
    if (!run.run.groups) return (this.id = null);
    if (this.id !== run.id) {
      this.id = run.id;
      this.asked = { search: "", order: "group_key", down: false, limit: PAGE, offset: 0 };
      this.standing = null;
      at("groups-filter").value = "";
      this.body.replaceChildren();
    }
    this.mark();
    const now = `${run.run.status} ${run.run.visits_done}`;
    if (now === this.standing || Date.now() - (this.read ?? 0) < (this.standing && run.live ? AGAIN : 0)) return;
    this.standing = now;
    this.ask({});
  }

  async ask(change) {
    Object.assign(this.asked, change);
    const id = this.id;
    const turn = (this.turn = (this.turn ?? 0) + 1);
    try {
      const found = await readGroups(id, this.asked);
      if (id !== this.id || turn !== this.turn) return;
      this.read = Date.now();
      this.draw(found);
    } catch (error) {
      if (turn !== this.turn) return;
      this.standing = null;
      this.hurt(error);
    }
  }

  draw(found) {
    const { total, statuses, spread, deciding } = found;
    const said = Object.entries(statuses ?? {}).filter(([status]) => status !== "measured").map(([status, count]) => `${count} ${status}`);
    setText(at("groups-about"), [`${many(total, "group")}, ${many(found.configs ?? 0, "config")} each`, ...said, deciding ? `by ${deciding.replace(/^(\S+) (.*)$/, "$2 on the $1 rows")}` : null].filter(Boolean).join(" · "));
    this.drawSpread(spread, found.bars ?? []);
    this.drawHead(found.columns ?? []);
    this.body.replaceChildren(...(found.rows ?? []).map((group) => this.row(group, found.columns ?? [])));
    const { offset } = this.asked;
    const last = Math.min(offset + PAGE, found.found);
    setText(at("groups-place"), found.found ? `${offset + 1} to ${last} of ${found.found}` : "no group is like that");
    at("groups-before").disabled = offset === 0;
    at("groups-after").disabled = last >= found.found;
    this.mark();
  }

  // How many groups have reached how much, by the best config of each.
  drawSpread(spread, bars) {
    const counts = new Map(bars);
    const most = Math.max(1, ...counts.values());
    const { lowest, highest, quantiles, mean } = spread;
    at("spread").hidden = !spread.number;
    at("spread").replaceChildren(...[...Array(spread.number ? BARS : 0)].map((_, place) => {
      const count = counts.get(place) ?? 0;
      const from = lowest + ((highest - lowest) * place) / BARS;
      const bar = make("div", { title: `from ${number(from)} to ${number(from + (highest - lowest) / BARS)}: ${many(count, "group")}` });
      bar.style.height = count ? `${Math.max(2, (100 * count) / most)}%` : "0";
      return bar;
    }));
    const words = spread.number ? `lowest ${number(lowest)} · 5 % ${number(quantiles[0])} · 25 % ${number(quantiles[1])} · median ${number(quantiles[2])} · 75 % ${number(quantiles[3])} · 95 % ${number(quantiles[4])} · highest ${number(highest)} · mean ${number(mean)}` : "nothing is measured yet";
    setText(at("spread-said"), words);
    at("spread").setAttribute("aria-label", `How the best value of each group is spread: ${words}`);
  }

  drawHead(columns) {
    const heads = [...columns.map((name) => [name, `.${name}`, ""]), ...COLUMNS];
    const { order, down } = this.asked;
    at("groups-table").tHead.replaceChildren(make("tr", {}, ...heads.map(([name, by, kind]) => {
      const head = make("th", { className: kind === "text" ? "" : kind, scope: "col" });
      if (!by) return head.append(name), head;
      const button = make("button", { type: "button", textContent: name, title: `Sort by ${name}` });
      button.addEventListener("click", () => this.ask({ order: by, down: order === by && !down, offset: 0 }));
      if (order === by) head.setAttribute("aria-sort", down ? "descending" : "ascending");
      head.append(button);
      return head;
    })));
  }

  row(group, columns) {
    const row = make("tr", { data: { key: group.group_key ?? "" }, tabIndex: 0 });
    const key = group.key ?? {};
    columns.forEach((name, place) => row.append(make("td", { textContent: group.is_fallback ? (place ? "" : "all rows") : said(key[name]) })));
    for (const [, , kind, text] of COLUMNS) row.append(make("td", { className: kind, textContent: text(group), title: kind === "text" ? text(group) : "" }));
    row.toggleAttribute("data-out", ["failed", "left out"].includes(group.status));
    return row;
  }

  mark() {
    for (const row of this.body.rows) row.setAttribute("aria-selected", String(row.dataset.key === this.group));
  }
}

// A value of a column that makes groups; NULL is one, too.
export const said = (value) => (value === null || value === undefined ? "NULL" : typeof value === "object" ? JSON.stringify(value) : String(value));

// The whole key on one line.
export function keyText(key) {
  if (!key) return "all rows";
  return Object.entries(JSON.parse(key)).map(([name, value]) => `${name} ${said(value)}`).join(", ");
}
