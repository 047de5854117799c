// A forecast: the newest values of a series, and what follows, with the band that holds it.

import { readForecast, readReasons } from "./api.js";
import { Chart, dot, linear, MARGIN, short, stroke, ticks } from "./charts.js";
import { FEW, explain, make, number, setText } from "./format.js";
import { drawn } from "./registered.js";

const at = (id) => document.getElementById(id);
const [COLOUR] = FEW;
const HOUR = 3600, DAY = 86_400;
const SPANS = [HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY, 14 * DAY, 30 * DAY, 91 * DAY, 182 * DAY, 365 * DAY, 730 * DAY, 1826 * DAY];

export class Forecasts {
  constructor() {
    this.name = null;
    this.shown = null;
    this.chart = new Bands(at("bands"), () => {});
    at("forecast-series").addEventListener("change", () => this.read(at("forecast-series").value));
    at("forecast-again").addEventListener("click", () => this.read(at("forecast-series").value));
    at("forecast-explain").addEventListener("click", () => this.explain(at("forecast-series").value));
  }

  // The forecasts in the list beside the page.
  list(names) {
    at("forecasts-fold").hidden = !names.length;
    at("forecasts").replaceChildren(...names.map((name) => {
      const link = make("a", { href: `#${new URLSearchParams({ forecast: name })}` }, make("span", { className: "name", textContent: name.replace(/^public\./, "") }));
      link.toggleAttribute("aria-current", name === this.name);
      return make("li", {}, link);
    }));
  }

  // Asked for once, when it is chosen: the server reads the whole source each time.
  async look() {
    at("forecast").hidden = false;
    if (this.shown === this.name) return;
    this.shown = this.name;
    setText(at("forecast-title"), this.name.replace(/^public\./, ""));
    document.title = `forecast: ${this.name}`;
    at("forecast-series").replaceChildren();
    await this.read("");
  }

  leave() {
    this.name = this.shown = null;
    at("forecast").hidden = true;
  }

  async read(series) {
    const { name } = this;
    at("forecast-problem").hidden = true;
    this.reason([]);
    setText(at("forecast-about"), "forecasting …");
    try {
      const found = await readForecast({ name, series });
      if (name === this.name) this.show(found);
    } catch (error) {
      if (name !== this.name) return;
      setText(at("forecast-about"), "");
      this.complain("forecast-problem", error);
    }
  }

  complain(id, error) {
    at(id).hidden = false;
    setText(at(id), explain(error));
  }

  async explain(series) {
    const { name } = this;
    this.reason([]);
    setText(at("reasons-about"), "explaining …");
    try {
      const { parts } = await readReasons({ name, series });
      if (name === this.name && series === at("forecast-series").value) this.reason(parts);
    } catch (error) {
      if (name !== this.name) return;
      setText(at("reasons-about"), "");
      this.complain("reasons-problem", error);
    }
  }

  // What leads from a series that has stood still to the net's next value.
  reason(parts) {
    const [first] = parts;
    at("reasons-problem").hidden = true;
    setText(at("reasons-about"), first ? `${number(first.value)}; of a series that stands still ${number(first.baseline)}` : "");
    at("reasons").replaceChildren(...drawn(parts.map(({ column_name: name, column_value: value, contribution }) => ({ name: `${name} = ${value ?? "NULL"}`, value: contribution, text: number(contribution) }))));
  }

  show({ series, total, chosen, points, numbered }) {
    const listed = series ?? [];
    const statuses = new Map(listed);
    at("forecast-series").replaceChildren(...listed.map(([value]) => make("option", { value, textContent: called(value), selected: value === chosen })));
    setText(at("forecast-about"), `${total} series${total > listed.length ? `, the first ${listed.length} can be chosen` : ""}`);
    const found = points ?? [];
    this.chart.show({ points: found, numbered, nothing: `this series has no forecast: ${statuses.get(chosen) ?? "it is not there"}` });
    const next = found.find((point) => !point.known);
    setText(at("forecast-said"), next ? `${statuses.get(chosen)} · next ${number(next.value)}${next.lower === null ? "" : `, and with a probability of 90 % from ${number(next.lower)} to ${number(next.upper)}`}` : "");
  }
}

// What names a series, without the marks of JSON.
function called(text) {
  const found = Object.entries(JSON.parse(text));
  return found.length ? found.map(([name, value]) => `${name} ${value}`).join(", ") : "all rows";
}

class Bands extends Chart {
  render(pen) {
    const { points, numbered } = this.data;
    if (!points.length) return this.nothing(pen, this.data.nothing);
    const values = points.flatMap(({ value, lower, upper }) => [value, lower, upper]).filter((one) => one !== null);
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const room = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
    const span = [points[0].at, points.at(-1).at];
    const x = linear(span, [MARGIN.left, this.width - MARGIN.right]);
    const y = linear([low - room, high + room], [this.height - MARGIN.bottom, MARGIN.top]);
    pen.lineWidth = 1;
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (const value of ticks(low - room, high + room, Math.max(2, this.height / 55))) {
      pen.fillStyle = this.quiet;
      pen.fillText(short(value), MARGIN.left - 8, y(value));
      pen.strokeStyle = this.line;
      stroke(pen, [[MARGIN.left, y(value)], [this.width - MARGIN.right, y(value)]]);
    }
    this.axisX(pen, span, x, numbered ? short : (value) => dated(value, span), 0, numbered ? [] : SPANS);
    const known = points.filter((point) => point.known);
    const coming = points.filter((point) => !point.known);
    // The band and the line of the forecast begin where the values end.
    const last = known.at(-1);
    const begun = last ? [{ ...last, lower: last.value, upper: last.value }, ...coming] : coming;
    this.band(pen, begun.filter((point) => point.lower !== null), x, y);
    const places = (some) => some.map((point) => [x(point.at), y(point.value)]);
    pen.strokeStyle = pen.fillStyle = this.ink;
    pen.lineWidth = 1.6;
    stroke(pen, places(known));
    pen.strokeStyle = pen.fillStyle = COLOUR;
    pen.lineWidth = 2;
    stroke(pen, places(begun));
    if (coming.length < 40) for (const [px, py] of places(coming)) dot(pen, px, py, 2.4);
    this.nearest(points, x, y, numbered);
  }

  band(pen, points, x, y) {
    if (points.length < 2) return;
    pen.fillStyle = COLOUR;
    pen.globalAlpha = 0.2;
    pen.beginPath();
    points.forEach((point, place) => pen[place ? "lineTo" : "moveTo"](x(point.at), y(point.upper)));
    for (const point of [...points].reverse()) pen.lineTo(x(point.at), y(point.lower));
    pen.closePath();
    pen.fill();
    pen.globalAlpha = 1;
  }

  nearest(points, x, y, numbered) {
    if (!this.pointer) return;
    const distance = (point) => Math.abs(x(point.at) - this.pointer.x);
    const found = points.reduce((best, point) => (distance(point) < distance(best) ? point : best));
    if (distance(found) > 24) return;
    const when = numbered ? short(found.at) : dated(found.at, [found.at, found.at]);
    const band = found.lower === null || found.known ? "" : ` (${number(found.lower)} to ${number(found.upper)})`;
    this.under = { key: null, text: `${when}: ${number(found.value)}${band}` };
  }
}

// A time of the clock on the wall: the day, and the hour where days are few.
function dated(seconds, [from, to]) {
  const time = new Date(seconds * 1000);
  const date = time.toLocaleDateString([], { timeZone: "UTC", dateStyle: "medium" });
  const hours = seconds % DAY !== 0 && to - from < 8 * DAY;
  return hours ? `${date} ${time.toLocaleTimeString([], { timeZone: "UTC", hour: "2-digit", minute: "2-digit", hour12: false })}` : date;
}
