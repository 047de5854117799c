// Parameter strings as they stand in a config, taken apart for showing: what is the same everywhere is left out.

// "optimizer='Adam(learning_rate=0.1)',loss='mse'" → {optimizer: "Adam", learning_rate: "0.1", loss: "mse"}
export function parts(text, found = {}) {
  for (const piece of split(text)) {
    const equals = piece.indexOf("=");
    if (equals < 1) continue;
    const name = piece.slice(0, equals).trim();
    const value = piece.slice(equals + 1).trim().replace(/^(['"])(.*)\1$/s, "$2");
    const call = /^([A-Za-z_.]+)\((.*)\)$/s.exec(value);
    found[name] = call ? call[1] : value;
    if (call) parts(call[2], found);
  }
  return found;
}

// At the commas that stand in no bracket and no quotes.
function split(text) {
  const pieces = [];
  let depth = 0;
  let quote = "";
  let start = 0;
  for (let place = 0; place < text.length; place++) {
    const c = text[place];
    if (quote) quote = c === quote ? "" : quote;
    else if (c === "'" || c === '"') quote = c;
    else if ("([{".includes(c)) depth++;
    else if (")]}".includes(c)) depth--;
    else if (c === "," && depth === 0) {
      pieces.push(text.slice(start, place));
      start = place + 1;
    }
  }
  return [...pieces, text.slice(start)];
}

// The names whose values differ among configs, in the order in which they come up.
export function differing(all) {
  const seen = new Map();
  for (const one of all)
    for (const name of Object.keys(one)) seen.set(name, (seen.get(name) ?? new Set()).add(one[name]));
  const everywhere = (name) => all.every((one) => name in one);
  return [...seen].filter(([name, values]) => values.size > 1 || !everywhere(name)).map(([name]) => name);
}
