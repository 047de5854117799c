// What the parameters have to do with the result: all at once, how much each explains, or one against the metric.

import { Chart, dot, linear, MARGIN, short, stroke, ticks } from "./charts.js";
import { brief, GREY, number } from "./format.js";

// A number with more values than this is cut in as many parts of equal size.
const PARTS = 4;
const FEWEST = 4;

// So near an axis the pointer takes hold of it.
const REACH = 16;

export class Relations extends Chart {
  // `keep` is told which configs go through the parts of axes that were chosen; null for all.
  constructor(canvas, choose, keep) {
    super(canvas, choose);
    this.keep = keep;
    this.parts = new Map();
    canvas.addEventListener("pointerdown", (event) => this.take(event));
    canvas.addEventListener("pointerup", () => this.let());
  }

  take({ offsetX, offsetY, pointerId }) {
    const name = this.axes?.find((one) => Math.abs(one.x - offsetX) < REACH)?.name;
    if (!name) return;
    this.canvas.setPointerCapture(pointerId);
    this.held = { name, from: this.height01.back(offsetY) };
    this.parts.delete(name);
  }

  point(event) {
    if (this.held && event) {
      const to = this.height01.back(event.offsetY);
      const [low, high] = [this.held.from, to].sort((a, b) => a - b);
      // A click is no part: it gives the axis free.
      if (high - low > 0.02) this.parts.set(this.held.name, [low, high]);
    }
    super.point(event);
  }

  let() {
    if (!this.held) return;
    this.held = null;
    this.draw();
  }

  begin() {
    this.parts.clear();
    this.kept = null;
  }

  render(pen) {
    this.axes = null;
    const { run, kind, against } = this.data;
    const measured = run.configs.filter((config) => config.value !== null);
    // Some differ only in configs that were not measured.
    const names = run.names.filter((name) => new Set(measured.map((config) => run.parts.get(config.mst_key)[name])).size > 1);
    if (kind === "history" && measured.length > 1) return this.history(pen, run, measured);
    if (measured.length < 2 || !names.length) return this.nothing(pen, "nothing to compare yet");
    if (kind === "importance") return this.importance(pen, run, measured, names);
    if (kind === "all") return this.parallel(pen, run, measured, names);
    const texts = (name) => measured.map((config) => run.parts.get(config.mst_key)[name]);
    if (names.includes(against) && against !== kind) return this.pair(pen, run, measured, [texts(kind), texts(against)]);
    this.scatter(pen, run, measured, texts(kind));
    this.title(pen, run);
  }

  // What the height of a point is.
  title(pen, run, text = run.deciding.replace(/^\S+ /, "")) {
    pen.fillStyle = this.quiet;
    pen.textAlign = "left";
    pen.textBaseline = "top";
    this.legible(pen, text, MARGIN.left + 4, 0);
  }

  // One parameter against another: the fuller the colour, the better the value.
  pair(pen, run, measured, texts) {
    const [across, up] = texts.map(axis);
    const left = MARGIN.left + 30;
    const x = linear([-0.04, 1.04], [left, this.width - MARGIN.right]);
    const y = linear([-0.08, 1.08], [this.height - MARGIN.bottom, MARGIN.top + 14]);
    pen.lineWidth = 1;
    pen.strokeStyle = this.line;
    pen.fillStyle = this.quiet;
    pen.textAlign = "center";
    pen.textBaseline = "top";
    for (const [place, text] of across.marks) {
      stroke(pen, [[x(place), y(-0.08)], [x(place), y(1.08)]]);
      pen.fillText(brief(text), x(place), this.height - MARGIN.bottom + 7);
    }
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (const [place, text] of up.marks) {
      stroke(pen, [[left, y(place)], [this.width - MARGIN.right, y(place)]]);
      pen.fillText(brief(text), left - 8, y(place));
    }
    const order = run.metrics.get(run.deciding)?.higher ? 1 : -1;
    const rows = measured.map((_, row) => row).sort((a, b) => order * (measured[a].value - measured[b].value));
    const points = rows.map((row, rank) => ({ key: measured[row].mst_key, points: [[x(across.heights[row]), y(up.heights[row])]], share: rank / (rows.length - 1) }));
    // Of those that lie on one place the best is seen.
    this.under = this.nearest([...points].reverse(), measured);
    const marked = this.under?.key ?? this.data.chosen;
    for (const { key, points: [[px, py]], share } of points) {
      pen.fillStyle = this.back;
      dot(pen, px, py, 9);
      pen.fillStyle = "#2463cf";
      pen.globalAlpha = 0.12 + 0.88 * share;
      dot(pen, px, py, 8);
      pen.globalAlpha = 1;
      pen.strokeStyle = key === marked ? this.ink : "#4c86e8";
      pen.lineWidth = key === marked ? 3 : 1;
      pen.stroke();
    }
    this.title(pen, run, "the fuller the colour, the better the config ranks");
  }

  // Config after config, with the best so far: whether a search still finds better ones.
  history(pen, run, unsorted) {
    const measured = [...unsorted].sort((a, b) => a.mst_key - b.mst_key);
    const place = this.scatter(pen, run, measured, measured.map((config) => String(config.mst_key)));
    const better = run.metrics.get(run.deciding)?.higher ? Math.max : Math.min;
    let best = measured[0].value;
    pen.strokeStyle = this.quiet;
    pen.lineWidth = 1.5;
    stroke(pen, measured.flatMap((config, row) => {
      const before = [place(row)[0], place(row, best)[1]];
      best = better(best, config.value);
      return [before, place(row, best)];
    }));
  }

  // A line for each config through its parameters, to its value.
  parallel(pen, run, measured, parameters) {
    const names = [...parameters, run.deciding.replace(/^\S+ /, "")];
    const axes = names.map((name, place) => axis(measured.map((c) => (place < parameters.length ? run.parts.get(c.mst_key)[name] : String(c.value)))));
    const x = linear([0, names.length - 1], [MARGIN.left, this.width - MARGIN.right - 50]);
    const y = linear([0, 1], [this.height - MARGIN.bottom, MARGIN.top + 8]);
    const lines = measured.map((config, row) => ({ key: config.mst_key, points: axes.map((one, place) => [x(place), y(one.heights[row])]) }));
    this.axes = names.map((name, place) => ({ name, x: x(place) }));
    this.height01 = { back: (at) => (y(0) - at) / (y(0) - y(1)) };
    const inside = (line) => names.every((name, place) => {
      const part = this.parts.get(name);
      const height = axes[place].heights[lines.indexOf(line)];
      return !part || (height >= part[0] - 0.01 && height <= part[1] + 0.01);
    });
    this.tell(this.parts.size ? lines.filter(inside).map((line) => line.key) : null);
    this.under = this.held ? null : this.nearest(lines, measured);
    const marked = this.under?.key ?? this.data.chosen;
    for (const line of [...lines].reverse()) this.curve(pen, line, run.colours.get(line.key), this.kept?.includes(line.key) === false ? 0 : marked);
    const top = lines.find((line) => line.key === marked);
    if (top) this.curve(pen, top, run.colours.get(top.key), marked, true);
    // Names that would run into each other stand in two rows.
    const room = x(1) - x(0) - 8;
    const crowded = names.some((name) => pen.measureText(name).width > room);
    // All axes before any text, which none of them may strike through.
    names.forEach((name, place) => {
      pen.strokeStyle = this.quiet;
      pen.lineWidth = 1;
      stroke(pen, [[x(place), y(0)], [x(place), y(1)]]);
      const part = this.parts.get(name);
      if (part) {
        pen.fillStyle = "#4c86e8";
        pen.globalAlpha = 0.5;
        pen.fillRect(x(place) - 5, y(part[1]), 10, y(part[0]) - y(part[1]));
        pen.globalAlpha = 1;
      }
    });
    names.forEach((name, place) => {
      pen.fillStyle = this.quiet;
      pen.textAlign = "left";
      pen.textBaseline = "middle";
      const written = [];
      for (const [height, text] of axes[place].marks) {
        // Of two that would lie on each other the first is read.
        if (written.some((before) => Math.abs(before - y(height)) < 13)) continue;
        written.push(y(height));
        this.legible(pen, fitting(pen, brief(text), place < names.length - 1 ? room - 4 : 50), x(place) + 5, y(height));
      }
      pen.textAlign = "center";
      pen.textBaseline = "top";
      pen.fillText(fitting(pen, name, (crowded ? 2 : 1) * room), x(place), this.height - MARGIN.bottom + (crowded ? 3 + 13 * (place % 2) : 7));
    });
  }

  tell(keys) {
    if (keys?.join() === this.kept?.join()) return;
    this.kept = keys;
    this.keep(keys);
  }

  // On a ground of its own, since lines run across.
  legible(pen, text, x, y) {
    const ink = pen.fillStyle;
    const { width, actualBoundingBoxAscent: up, actualBoundingBoxDescent: down } = pen.measureText(text);
    pen.fillStyle = this.back;
    pen.fillRect(x - 2, y - up - 2, width + 4, up + down + 4);
    pen.fillStyle = ink;
    pen.fillText(text, x, y);
  }

  curve(pen, line, colour, marked, top = false) {
    const faint = marked !== undefined && marked !== null && !top;
    pen.strokeStyle = colour;
    pen.globalAlpha = faint ? 0.2 : colour === GREY && !top ? 0.45 : 0.9;
    pen.lineWidth = top ? 3 : 1.4;
    stroke(pen, line.points);
    pen.globalAlpha = 1;
  }

  // How much of the variance of the values is between groups of configs with one value of the parameter.
  importance(pen, run, measured, names) {
    if (measured.length < FEWEST) return this.nothing(pen, `${FEWEST} configs must be measured for this`);
    const shares = names.map((name) => [name, explained(measured.map((c) => [run.parts.get(c.mst_key)[name], c.value]))]);
    shares.sort((a, b) => b[1] - a[1]);
    const left = 130;
    const x = linear([0, 1], [left, this.width - MARGIN.right - 40]);
    const row = Math.min(34, (this.height - MARGIN.top - MARGIN.bottom) / shares.length);
    pen.textBaseline = "middle";
    shares.forEach(([name, share], place) => {
      const middle = MARGIN.top + row * (place + 0.5);
      pen.fillStyle = this.ink;
      pen.textAlign = "right";
      pen.fillText(name, left - 8, middle);
      pen.fillStyle = "#4c86e8";
      pen.fillRect(left, middle - row * 0.3, Math.max(1, x(share) - left), row * 0.6);
      pen.fillStyle = this.quiet;
      pen.textAlign = "left";
      pen.fillText(`${Math.round(100 * share)} %`, x(share) + 6, middle);
    });
    pen.textAlign = "left";
    pen.textBaseline = "top";
    pen.fillText("share of the variance that the parameter explains by itself", left, this.height - MARGIN.bottom + 7);
  }

  // Gives where a config stands with a value.
  scatter(pen, run, measured, texts) {
    const across = axis(texts);
    pen.lineWidth = 1;
    const values = measured.map((config) => config.value);
    const room = (Math.max(...values) - Math.min(...values)) * 0.06 || Math.abs(values[0]) * 0.1 || 1;
    const range = [Math.min(...values) - room, Math.max(...values) + room];
    const x = linear([-0.04, 1.04], [MARGIN.left, this.width - MARGIN.right]);
    const y = linear(range, [this.height - MARGIN.bottom, MARGIN.top]);
    pen.textBaseline = "middle";
    for (const value of ticks(...range, Math.max(2, this.height / 55))) {
      pen.fillStyle = this.quiet;
      pen.textAlign = "right";
      pen.fillText(short(value), MARGIN.left - 8, y(value));
      pen.strokeStyle = this.line;
      stroke(pen, [[MARGIN.left, y(value)], [this.width - MARGIN.right, y(value)]]);
    }
    pen.fillStyle = this.quiet;
    pen.textAlign = "center";
    pen.textBaseline = "top";
    for (const [height, text] of across.marks) pen.fillText(brief(text), x(height), this.height - MARGIN.bottom + 7);
    const lines = measured.map((config, row) => ({ key: config.mst_key, points: [[x(across.heights[row]), y(config.value)]] }));
    this.under = this.nearest(lines, measured);
    const marked = this.under?.key ?? this.data.chosen;
    for (const { key, points } of [...lines].reverse()) {
      pen.fillStyle = run.colours.get(key);
      pen.globalAlpha = marked === null || marked === key ? 0.95 : 0.4;
      dot(pen, ...points[0], key === marked ? 7 : 4.5);
    }
    pen.globalAlpha = 1;
    return (row, value = measured[row].value) => [x(across.heights[row]), y(value)];
  }

  nearest(lines, measured) {
    if (!this.pointer) return null;
    let best = { distance: 20 ** 2 };
    for (const line of lines)
      for (const [x, y] of line.points) {
        const distance = (x - this.pointer.x) ** 2 + (y - this.pointer.y) ** 2;
        if (distance < best.distance) best = { distance, key: line.key };
      }
    if (best.key === undefined) return null;
    const config = measured.find((one) => one.mst_key === best.key);
    return { key: best.key, text: `config ${best.key}: ${config.metric} ${number(config.value)}` };
  }
}

// A text that has no more than so much room, cut where it is longer.
function fitting(pen, text, room) {
  if (pen.measureText(text).width <= room) return text;
  let kept = text.length - 1;
  while (kept > 1 && pen.measureText(`${text.slice(0, kept)}…`).width > room) kept--;
  return `${text.slice(0, kept)}…`;
}

// Where each value stands between 0 and 1, and some values to write there: numbers by size, or by their logarithms
// where they reach far; all else side by side.
function axis(texts) {
  const given = texts.map((text) => text ?? "–");
  const numbers = given.map(Number);
  const distinct = [...new Set(given)];
  if (numbers.every(Number.isFinite) && distinct.length > 1) {
    const [low, high] = [Math.min(...numbers), Math.max(...numbers)];
    const scale = low > 0 && high / low > 30 ? Math.log : (value) => value;
    const place = linear([scale(low), scale(high)], [0, 1]);
    const shown = distinct.length <= 5 ? distinct : [String(low), String(high)];
    return { heights: numbers.map((value) => place(scale(value))), marks: shown.map((text) => [place(scale(Number(text))), text]) };
  }
  distinct.sort();
  const place = (text) => (distinct.length > 1 ? distinct.indexOf(text) / (distinct.length - 1) : 0.5);
  return { heights: given.map(place), marks: distinct.slice(0, 12).map((text) => [place(text), text]) };
}

export function explained(pairs) {
  const values = pairs.map(([, value]) => value);
  const mean = (list) => list.reduce((a, b) => a + b, 0) / list.length;
  const middle = mean(values);
  const total = values.reduce((sum, value) => sum + (value - middle) ** 2, 0);
  if (!total) return 0;
  const groups = new Map();
  for (const [group, value] of grouped(pairs)) groups.set(group, [...(groups.get(group) ?? []), value]);
  // Of groups of one nothing is learned: everything would be explained.
  if (groups.size === pairs.length) return 0;
  const between = [...groups.values()].reduce((sum, list) => sum + list.length * (mean(list) - middle) ** 2, 0);
  return between / total;
}

function grouped(pairs) {
  const numbers = pairs.map(([text]) => Number(text));
  const distinct = new Set(pairs.map(([text]) => text));
  if (distinct.size <= PARTS || !numbers.every(Number.isFinite)) return pairs;
  const order = [...pairs].sort((a, b) => Number(a[0]) - Number(b[0]));
  return order.map(([, value], place) => [Math.floor((place * PARTS) / order.length), value]);
}
