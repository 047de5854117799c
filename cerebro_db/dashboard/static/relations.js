// What the parameters have to do with the result: all at once, how much each explains, or one against the metric.

import { Chart, dot, linear, MARGIN, short, stroke, ticks } from "./charts.js";
import { brief, GREY, number } from "./format.js";

// A number with more values than this is cut in as many parts of equal size.
const PARTS = 4;
const FEWEST = 4;

export class Relations extends Chart {
  render(pen) {
    const { run, kind } = this.data;
    const measured = run.configs.filter((config) => config.value !== null);
    // Some differ only in configs that were not measured.
    const names = run.names.filter((name) => new Set(measured.map((config) => run.parts.get(config.mst_key)[name])).size > 1);
    if (kind === "history" && measured.length > 1) return this.history(pen, run, measured);
    if (measured.length < 2 || !names.length) return this.nothing(pen, "nothing to compare yet");
    if (kind === "importance") return this.importance(pen, run, measured, names);
    if (kind === "all") return this.parallel(pen, run, measured, names);
    return this.scatter(pen, run, measured, measured.map((config) => run.parts.get(config.mst_key)[kind]));
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
    this.under = this.nearest(lines, measured);
    const marked = this.under?.key ?? this.data.chosen;
    for (const line of [...lines].reverse()) this.curve(pen, line, run.colours.get(line.key), marked);
    const top = lines.find((line) => line.key === marked);
    if (top) this.curve(pen, top, run.colours.get(top.key), marked, true);
    names.forEach((name, place) => {
      pen.strokeStyle = this.quiet;
      pen.lineWidth = 1;
      stroke(pen, [[x(place), y(0)], [x(place), y(1)]]);
      pen.fillStyle = this.quiet;
      pen.textAlign = "left";
      pen.textBaseline = "middle";
      for (const [height, text] of axes[place].marks) this.legible(pen, brief(text), x(place) + 5, y(height));
      pen.textAlign = "center";
      pen.textBaseline = "top";
      pen.fillText(name, x(place), this.height - MARGIN.bottom + 7);
    });
  }

  // On a ground of its own, since lines run across.
  legible(pen, text, x, y) {
    pen.strokeStyle = this.back;
    pen.lineWidth = 4;
    pen.strokeText(text, x, y);
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
