// A registered model: its versions, its health over time, and what it goes by, as bars.

import { readExplanation, readImportance, readModel } from "./api.js";
import { day, explain, make, many, number, setText } from "./format.js";

const at = (id) => document.getElementById(id);

export class Registered {
  constructor() {
    this.name = null;
    this.ask("worth", readImportance, ({ columns }) => columns.map(({ column_name: name, importance: value, low, high }) => ({ name, value, text: `${number(value)} ± ${number((high - low) / 2)}`, title: `between ${number(low)} and ${number(high)}`, span: [low, high] })));
    this.ask("parts", readExplanation, ({ columns }) => {
      const [first] = columns;
      if (!first) throw new Error("the table has no such row");
      const answer = first.class === null ? number(first.prediction) : `${first.class} (${number(first.probability)})`;
      setText(at("parts-about"), `${answer}; score ${number(first.score)}, of the mean row ${number(first.baseline)}`);
      return columns.map(({ column_name: name, value, contribution, map }) => ({ name: map ? name : `${name} = ${value ?? "NULL"}`, value: contribution, text: number(contribution), map }));
    });
  }

  // The models in the list beside the page.
  list(models) {
    at("models-fold").hidden = !models.length;
    at("models").replaceChildren(...models.map(({ name, versions, default_version: version, verdict }) => {
      const link = make("a", { href: `#model=${name}` }, make("span", { className: "name", textContent: name }),
        make("span", { className: "chip", textContent: verdict ?? "", data: { status: verdict ?? "" } }),
        make("span", { className: "more", textContent: `${many(versions, "version")} · default ${version}` }));
      link.toggleAttribute("aria-current", name === this.name);
      return make("li", {}, link);
    }));
  }

  async look() {
    const { name } = this;
    const found = await readModel(name);
    if (name !== this.name) return;
    at("registered").hidden = false;
    const [last] = found.checks;
    setText(at("registered-title"), name);
    document.title = `${last?.verdict ?? "model"}: ${name}`;
    setText(at("registered-verdict"), last?.verdict ?? "");
    at("registered-verdict").dataset.status = last?.verdict ?? "";
    setText(at("registered-about"), `${many(found.versions.length, "version")} · ${many(found.checks.length, "check")}`);
    this.versions(found.versions);
    this.health(found.checks);
  }

  leave() {
    if (this.name === null) return;
    this.name = null;
    at("registered").hidden = true;
    for (const id of ["worth", "parts"]) at(id).replaceChildren();
    setText(at("parts-about"), "");
  }

  versions(versions) {
    const heads = ["version", "aliases", "measured", "comment", "registered"];
    const measured = ({ validation, training }) => {
      const one = validation ?? training;
      return one ? `${validation ? "validation" : "training"} loss ${number(one.loss)}${one.metric ? `, ${one.metric} ${number(one.value)}` : ""}` : "";
    };
    at("versions-table").tHead.replaceChildren(make("tr", {}, ...heads.map((textContent) => make("th", { textContent, scope: "col" }))));
    at("versions-table").tBodies[0].replaceChildren(...versions.map((one) => make("tr", {},
      ...[one.version, one.aliases.join(", "), measured(one.metrics), one.comment ?? "", `${day(one.at)} by ${one.registered_by}`].map((textContent) => make("td", { textContent })))));
  }

  // Each check where its time is, the last one at the right.
  health(checks) {
    const marks = [...checks].reverse();
    const [first, last] = [marks[0], marks.at(-1)];
    setText(at("health-about"), marks.length ? "checks by cerebro.check" : "no check yet: SELECT * FROM cerebro.check('" + this.name + "', 'table')");
    at("health").hidden = !marks.length;
    at("health").replaceChildren(...marks.map((check) => {
      const mark = make("li", { title: told(check), data: { verdict: check.verdict } });
      mark.setAttribute("aria-label", told(check));
      mark.style.left = last.at > first.at ? `${(100 * (check.at - first.at)) / (last.at - first.at)}%` : "50%";
      return mark;
    }));
    setText(at("health-from"), first ? day(first.at) : "");
    setText(at("health-to"), last && last.at > first.at ? day(last.at) : "");
    setText(at("health-said"), last ? told(last) : "");
  }

  ask(id, read, bars) {
    at(`${id}-form`).addEventListener("submit", async (event) => {
      event.preventDefault();
      const { name } = this;
      const problem = at(`${id}-problem`);
      problem.hidden = true;
      at(id).replaceChildren(make("span", { className: "quiet", textContent: "The server computes …" }));
      try {
        const found = bars(await read({ model: `${name}@default`, ...Object.fromEntries(new FormData(event.target)) }));
        if (name === this.name) at(id).replaceChildren(...drawn(found));
      } catch (trouble) {
        if (name !== this.name) return;
        at(id).replaceChildren();
        setText(problem, explain(trouble));
        problem.hidden = false;
      }
    });
  }
}

// Bars, each with its name, with a map of an image; its length, with the span in which the value lies; and in words.
export function drawn(bars) {
  const ends = bars.flatMap(({ value, span }) => span ?? [Math.abs(value)]);
  const from = Math.min(0, ...ends), width = Math.max(...ends) - from || 1;
  const share = (length) => `${(100 * length) / width}%`;
  return bars.flatMap(({ name, value, text, title = "", map, span }) => {
    const bar = make("div", { data: { against: String(value < 0) } });
    bar.style.left = share((span ? Math.min(0, value) : 0) - from);
    bar.style.width = share(Math.abs(value));
    const track = make("span", { className: "track" }, bar);
    if (span) {
      const reach = make("i");
      reach.style.left = share(span[0] - from);
      reach.style.width = share(span[1] - span[0]);
      track.append(reach);
    }
    const said = make("span", { textContent: name, title: name });
    if (map) said.append(make("img", { className: "map", src: `data:image/png;base64,${map}`, alt: "red pixels speak for the answer, blue ones against it" }));
    return [said, track, make("span", { className: "number", textContent: text, title })];
  });
}

function told({ at: time, version, source_table: table, rows, verdict, findings }) {
  const found = (findings ?? []).map((one) => [one.column, one.measure, one.value === null ? "" : number(one.value)].filter(Boolean).join(" "));
  return `${day(time)}: version ${version} on ${many(rows, "row")} of ${table}: ${verdict}${found.length ? ` (${found.join(", ")})` : ""}`;
}
