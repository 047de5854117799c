// Numbers and times as a person reads them, and small pieces of the page.

export function number(value) {
  if (value === null || value === undefined) return "";
  const size = Math.abs(value);
  if (size !== 0 && (size < 0.001 || size >= 100_000)) return value.toExponential(2);
  return value.toFixed(size >= 100 ? 1 : 4);
}

// A number in few characters, and all else as it is, dates among it; the whole of it stands with the config.
export const brief = (text) => (/^-?[0-9.e-]{9,}$/.test(text) && Number.isFinite(Number(text)) ? String(Number(Number(text).toPrecision(4))) : text);

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 60) return `${seconds < 10 && seconds % 1 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  const rest = Math.floor(seconds % 60);
  if (minutes < 60) return rest ? `${minutes} min ${rest} s` : `${minutes} min`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export function bytes(size) {
  if (size === null || size === undefined) return "";
  const mega = size / 2 ** 20;
  if (mega < 1) return `${Math.round(size / 1024)} kB`;
  return mega < 1000 ? `${Math.round(mega)} MB` : `${(mega / 1024).toFixed(2)} GB`;
}

export const clock = (at) => new Date(at * 1000).toLocaleTimeString([], { hour12: false });

export const day = (at) =>
  new Date(at * 1000).toLocaleString([], { dateStyle: "medium", timeStyle: "short", hour12: false });

// In few characters: the time of today, or else the day.
export function when(at) {
  const then = new Date(at * 1000);
  const today = then.toDateString() === new Date().toDateString();
  return today ? then.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false }) : then.toLocaleDateString([], { dateStyle: "medium" });
}

export const many = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1).replace(/\.?$/, ".");

// What is wrong, why, and what to do about it.
export const explain = ({ message, detail, hint }) => [message, detail, hint].filter(Boolean).map(sentence).join(" ");

// An element with properties and children; text is never read as HTML.
export function make(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key === "data") Object.assign(made.dataset, value);
    else if (key in made) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// Few configs get colours that nobody mixes up. Of many, the best eight do, and keep theirs while they are among
// these; the others are grey, as in the report.
export const FEW = ["#4c86e8", "#e8833a", "#3aa76d", "#d65a9c", "#8a6be0", "#b3921f", "#2393a3", "#d95555", "#7f8c3a", "#9a6a4f"];
const BEST = 8;
export const GREY = "#9aa5b4";

export function colours(ranked, before = new Map()) {
  const keys = ranked.map((config) => config.mst_key);
  if (keys.length <= FEW.length) return new Map(keys.sort((a, b) => a - b).map((key, place) => [key, FEW[place]]));
  const best = keys.slice(0, BEST);
  const kept = new Map(best.map((key) => [key, before.get(key)]).filter(([, colour]) => FEW.includes(colour)));
  const free = FEW.slice(0, BEST).filter((colour) => ![...kept.values()].includes(colour));
  for (const key of best) if (!kept.has(key)) kept.set(key, free.shift() ?? GREY);
  return new Map(keys.map((key) => [key, kept.get(key) ?? GREY]));
}
