// Two pictures on canvas: 200 configs and a hundred thousand visits are drawn in one go, with no element for each.

import { bytes, duration, FEW, GREY, number } from "./format.js";

const SECONDS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600];
export const MARGIN = { left: 58, right: 12, top: 10, bottom: 30 };

export class Chart {
  constructor(canvas, choose) {
    this.canvas = canvas;
    this.tip = canvas.parentElement.querySelector(".tip");
    this.pointer = null;
    canvas.addEventListener("pointermove", (event) => this.point(event));
    canvas.addEventListener("pointerleave", () => this.point(null));
    canvas.addEventListener("click", () => this.under?.key != null && choose(this.under.key));
    new ResizeObserver(() => this.draw()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  show(data) {
    this.data = data;
    this.draw();
  }

  point(event) {
    this.pointer = event && { x: event.offsetX, y: event.offsetY };
    this.draw();
  }

  // One drawing for each frame, however often it is asked for.
  draw() {
    this.asked ??= requestAnimationFrame(() => {
      this.asked = undefined;
      if (this.data && this.canvas.clientWidth > 0) this.paint();
    });
  }

  paint() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const scale = devicePixelRatio;
    if (this.canvas.width !== Math.round(width * scale) || this.canvas.height !== Math.round(height * scale)) {
      this.canvas.width = Math.round(width * scale);
      this.canvas.height = Math.round(height * scale);
    }
    const pen = this.canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    const style = getComputedStyle(this.canvas);
    pen.font = `12px ${style.fontFamily}`;
    this.ink = style.color;
    // The variables are written with light-dark(), which a canvas does not know.
    this.quiet = resolved(this.canvas, "--quiet");
    this.line = resolved(this.canvas, "--line");
    this.back = resolved(this.canvas, "--panel");
    this.width = width;
    this.height = height;
    this.under = null;
    this.render(pen);
    this.showTip();
  }

  showTip() {
    this.tip.hidden = !this.under;
    this.canvas.style.cursor = this.under ? "pointer" : "default";
    if (!this.under) return;
    this.tip.textContent = this.under.text;
    const left = Math.min(this.pointer.x + 12, this.width - this.tip.offsetWidth - 4);
    this.tip.style.left = `${Math.max(0, left)}px`;
    this.tip.style.top = `${Math.max(0, this.pointer.y - 34)}px`;
  }

  nothing(pen, text) {
    pen.fillStyle = this.quiet;
    pen.textAlign = "center";
    pen.fillText(text, this.width / 2, this.height / 2);
  }

  // Lines and numbers at round values along an axis.
  axisX(pen, [from, to], place, write, least = 0, steps = []) {
    pen.textAlign = "center";
    pen.textBaseline = "top";
    for (const value of ticks(from, to, Math.max(2, this.width / 110), least, steps)) {
      pen.fillStyle = this.quiet;
      pen.fillText(write(value), place(value), this.height - MARGIN.bottom + 7);
      pen.strokeStyle = this.line;
      stroke(pen, [[place(value), MARGIN.top], [place(value), this.height - MARGIN.bottom]]);
    }
  }
}

export class Curves extends Chart {
  render(pen) {
    const { lines, colours, chosen, smooth, log } = this.data;
    // Grey ones first, so that no other is covered.
    const drawn = lines.map((line) => prepared(line, smooth, log)).filter((line) => line.points.length)
      .sort((a, b) => (colours.get(b.key) === GREY) - (colours.get(a.key) === GREY));
    if (!drawn.length) return this.nothing(pen, log && lines.length ? "nothing here is more than 0" : this.data.nothing);
    this.write = log ? (value) => short(10 ** value) : short;
    const box = bounds(drawn);
    const x = linear(box.x, [MARGIN.left, this.width - MARGIN.right]);
    const y = linear(box.y, [this.height - MARGIN.bottom, MARGIN.top]);
    this.axes(pen, box, x, y);
    pen.save();
    pen.beginPath();
    pen.rect(MARGIN.left, 0, this.width - MARGIN.left, this.height - MARGIN.bottom + 4);
    pen.clip();
    this.under = this.nearest(drawn, x, y);
    const marked = this.under?.key ?? chosen;
    for (const line of drawn) this.curve(pen, line, x, y, colours.get(line.key), marked);
    const top = drawn.find((line) => line.key === marked);
    if (top) this.curve(pen, top, x, y, colours.get(top.key), marked, true);
    pen.restore();
  }

  axes(pen, box, x, y) {
    pen.lineWidth = 1;
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (const value of ticks(...box.y, Math.max(2, this.height / 55))) {
      pen.fillStyle = this.quiet;
      pen.fillText(this.write(value), MARGIN.left - 8, y(value));
      pen.strokeStyle = this.line;
      stroke(pen, [[MARGIN.left, y(value)], [this.width - MARGIN.right, y(value)]]);
    }
    if (this.data.byTime) return this.axisX(pen, box.x, x, duration, 0, SECONDS);
    this.axisX(pen, box.x, x, short, 1);
    pen.textAlign = "left";
    pen.fillText("epoch", 4, this.height - MARGIN.bottom + 7);
  }

  curve(pen, line, x, y, colour, marked, top = false) {
    const faint = marked !== undefined && marked !== null && !top;
    pen.strokeStyle = pen.fillStyle = colour;
    const grey = colour === GREY && !top;
    pen.globalAlpha = faint ? 0.22 : grey ? 0.5 : 0.9;
    pen.lineWidth = top ? 3 : grey ? 1 : 1.6;
    const points = line.points.map(([at, value]) => [x(at), y(value)]);
    stroke(pen, points);
    if (!grey && points.length < (top ? 80 : 40)) for (const [px, py] of points) dot(pen, px, py, top ? 3.5 : 2.2);
    pen.globalAlpha = 1;
  }

  nearest(lines, x, y) {
    if (!this.pointer) return null;
    let best = { distance: 24 ** 2 };
    for (const line of lines)
      for (const [at, value, measured, epoch] of line.points) {
        const distance = (x(at) - this.pointer.x) ** 2 + (y(value) - this.pointer.y) ** 2;
        if (distance < best.distance) best = { distance, line, epoch, value: measured };
      }
    if (!best.line) return null;
    return { key: best.line.key, text: `${this.data.what} ${best.line.label ?? best.line.key}, epoch ${short(best.epoch)}: ${number(best.value)}` };
  }
}

// A line as it is drawn: smoothed by the values before, and by its logarithms; each point keeps what was measured.
function prepared({ key, points }, smooth = 0, log = false) {
  let before = null;
  const found = points.map(([at, value, epoch]) => {
    before = before === null ? value : smooth * before + (1 - smooth) * value;
    return [at, log ? Math.log10(before) : before, value, epoch];
  });
  return { key, points: found.filter(([, value]) => Number.isFinite(value)) };
}

export class Timeline extends Chart {
  render(pen) {
    const { visits, working, segments, begin, now, span, show } = this.data;
    if (show !== "configs") return this.used(pen, show);
    if (!visits.length && !working.length) return this.nothing(pen, "no visit has ended yet");
    const from = span ? Math.max(begin, now - span) : begin;
    const x = linear([from, Math.max(now, from + 1)], [MARGIN.left, this.width - MARGIN.right]);
    const row = (this.height - MARGIN.top - MARGIN.bottom) / segments;
    const write = (value) => duration(value);
    this.axisX(pen, [from - begin, Math.max(now, from + 1) - begin], (value) => x(value + begin), write, 0, SECONDS);
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    pen.fillStyle = this.quiet;
    for (let segment = 0; segment < segments; segment++)
      if (row >= 13) pen.fillText(segments > 6 ? segment : `seg. ${segment}`, MARGIN.left - 8, MARGIN.top + row * (segment + 0.5));
    pen.save();
    pen.beginPath();
    pen.rect(MARGIN.left, 0, this.width - MARGIN.left, this.height);
    pen.clip();
    for (const visit of visits)
      if (visit.ended_at >= from) this.block(pen, x, row, visit, visit.ended_at, false);
    for (const visit of working) this.block(pen, x, row, visit, now, true);
    pen.restore();
  }

  // What the segments' sessions have used: cores during each visit, or memory at its end.
  used(pen, what) {
    const { sessions, begin, now, span } = this.data;
    const from = span ? Math.max(begin, now - span) : begin;
    const lines = [...sessions].map(([segment, uses]) => [segment, summed(uses, from, now)]);
    const most = Math.max(...lines.flatMap(([, uses]) => uses.map((use) => use[what])), 0);
    if (!most) return this.nothing(pen, "no session has told yet what it uses");
    const write = what === "cpu" ? (value) => `${Math.round(100 * value)} %` : bytes;
    const x = linear([from, Math.max(now, from + 1)], [MARGIN.left, this.width - MARGIN.right]);
    const y = linear([0, most * 1.08], [this.height - MARGIN.bottom, MARGIN.top]);
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (const value of what === "cpu" ? ticks(0, most * 1.08, 5) : ticks(0, (most * 1.08) / 2 ** 20, 5).map((mega) => mega * 2 ** 20)) {
      pen.fillStyle = this.quiet;
      pen.fillText(write(value), MARGIN.left - 8, y(value));
      pen.strokeStyle = this.line;
      stroke(pen, [[MARGIN.left, y(value)], [this.width - MARGIN.right, y(value)]]);
    }
    this.axisX(pen, [from - begin, Math.max(now, from + 1) - begin], (value) => x(value + begin), duration, 0, SECONDS);
    let best = { distance: 24 ** 2 };
    lines.forEach(([segment, uses], place) => {
      pen.strokeStyle = FEW[place % FEW.length];
      pen.lineWidth = 1.8;
      stroke(pen, uses.flatMap((use) => [[x(use.from), y(use[what])], [x(use.to), y(use[what])]]));
      for (const use of this.pointer ? uses : []) {
        const distance = (x(use.to) - this.pointer.x) ** 2 + (y(use[what]) - this.pointer.y) ** 2;
        if (distance < best.distance) best = { distance, key: null, text: `segment ${segment}, process ${use.pid}: ${write(use[what])}` };
      }
    });
    pen.lineWidth = 1;
    if (best.text) this.under = best;
  }

  block(pen, x, row, visit, end, open) {
    const left = x(visit.started_at);
    const wide = Math.max(x(end) - left, 0.7);
    const top = MARGIN.top + row * visit.segment + row * 0.1;
    const high = row * 0.8;
    const marked = this.data.chosen;
    pen.globalAlpha = marked !== null && marked !== visit.mst_key ? 0.2 : open ? 0.55 : 1;
    pen.fillStyle = this.data.colours.get(visit.mst_key) ?? this.quiet;
    pen.fillRect(left, top, wide > 3 ? wide - 0.6 : wide, high);
    pen.globalAlpha = 1;
    if (open) {
      pen.strokeStyle = this.ink;
      pen.setLineDash([4, 3]);
      pen.strokeRect(left, top, wide, high);
      pen.setLineDash([]);
    }
    const label = String(visit.mst_key);
    if (marked !== null && marked !== visit.mst_key) return this.touch(visit, left, wide, top, high, end, open);
    if (wide > 9 + 7 * label.length && high > 13) {
      pen.fillStyle = open ? this.ink : "#fff";
      pen.textAlign = "center";
      pen.fillText(label, left + wide / 2, top + high / 2);
    }
    this.touch(visit, left, wide, top, high, end, open);
  }

  touch(visit, left, wide, top, high, end, open) {
    const at = this.pointer;
    if (at && at.x >= left && at.x <= left + Math.max(wide, 2) && at.y >= top && at.y <= top + high)
      this.under = { key: visit.mst_key, text: told(visit, end, open) };
  }
}

// Short visits say little one by one: the time is cut in parts, and each has the processor time of all its visits and
// the newest memory.
const USED_PARTS = 60;

function summed(uses, from, now) {
  const wide = Math.max((now - from) / USED_PARTS, 0.5);
  const parts = [];
  for (const use of uses) {
    for (let n = Math.max(0, Math.floor((use.from - from) / wide)); n * wide + from < use.to; n++) {
      const [begin, end] = [from + n * wide, Math.min(from + (n + 1) * wide, now)];
      const part = (parts[n] ??= { from: begin, to: end, cpu: 0, pid: use.pid });
      part.cpu += (use.cpu * (Math.min(use.to, end) - Math.max(use.from, begin))) / (end - begin);
      Object.assign(part, { memory: use.memory, pid: use.pid });
    }
  }
  return parts.filter(Boolean);
}

function told(visit, end, open) {
  const took = duration(end - visit.started_at);
  if (open) return `config ${visit.mst_key} is on segment ${visit.segment} now`;
  const loss = visit.loss === null ? "" : `, loss ${number(visit.loss)}`;
  return `config ${visit.mst_key}, epoch ${visit.epoch}, segment ${visit.segment}: ${took}${loss}`;
}

function resolved(element, variable) {
  element.style.outlineColor = `var(${variable})`;
  const colour = getComputedStyle(element).outlineColor;
  element.style.outlineColor = "";
  return colour;
}

export function linear([from, to], [start, end]) {
  const factor = (end - start) / (to - from || 1);
  return (value) => start + (value - from) * factor;
}

// One config that runs away must not press all others into a line: what lies far outside is cut off.
function bounds(lines) {
  const values = lines.flatMap((line) => line.points.map((point) => point[1])).sort((a, b) => a - b);
  const at = (share) => values[Math.min(values.length - 1, Math.floor(share * values.length))];
  const middle = at(0.9) - at(0.1) || Math.abs(at(0.5)) * 0.1 || 1;
  const low = Math.max(values[0], at(0.1) - 3 * middle);
  const high = Math.min(values.at(-1), at(0.9) + 3 * middle);
  const room = (high - low) * 0.06 || middle;
  const epochs = lines.flatMap((line) => [line.points[0][0], line.points.at(-1)[0]]);
  return { x: [Math.min(0, ...epochs), Math.max(1, ...epochs)], y: [low - room, high + room] };
}

// At steps that are round numbers, or of the given ones the next larger.
export function ticks(from, to, count, least = 0, steps = []) {
  const rough = Math.max((to - from) / count || 1, least);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = steps.find((one) => one >= rough) ?? [1, 2, 5, 10].find((factor) => factor * power >= rough) * power;
  const found = [];
  for (let n = Math.ceil(from / step - 1e-9); n * step <= to + step * 1e-9; n++) found.push(n * step);
  return found;
}

export const short = (value) => String(Number(value.toPrecision(4)));

export function stroke(pen, points) {
  pen.beginPath();
  points.forEach(([x, y], place) => (place ? pen.lineTo(x, y) : pen.moveTo(x, y)));
  pen.stroke();
}

export function dot(pen, x, y, radius) {
  pen.beginPath();
  pen.arc(x, y, radius, 0, 2 * Math.PI);
  pen.fill();
}
