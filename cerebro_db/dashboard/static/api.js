// Talking to the page's own server. What goes wrong becomes a Trouble: `lost` is what may heal by itself.

export class Trouble extends Error {
  constructor(message, detail, hint, lost) {
    super(message);
    this.detail = detail;
    this.hint = hint;
    this.lost = lost;
  }
}

const PATIENCE = 40_000;

async function call(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, { ...options, signal: AbortSignal.timeout(PATIENCE) });
  } catch {
    throw new Trouble("cerebro dashboard does not answer", "Is it still running in its terminal?", null, true);
  }
  const found = await answer.json().catch(() => ({ error: `cerebro dashboard answers with ${answer.status}` }));
  if (answer.ok) return found;
  throw new Trouble(found.error, found.detail, found.hint, answer.status >= 500);
}

export const overview = () => call("/api/overview");

export const readRun = (id, since) => call(`/api/runs/${id}?${new URLSearchParams(since)}`);

export const readGroups = (id, asked) => call(`/api/runs/${id}/groups?${new URLSearchParams(asked)}`);

export const readCompared = (ids) => call(`/api/compare?runs=${ids.join()}`);

export const suggestion = (id) => call(`/api/runs/${id}/suggestion`);
export const confusion = (id, key) => call(`/api/runs/${id}/configs/${key}/confusion`);
export const predictions = (id, key, asked) => call(`/api/runs/${id}/configs/${key}/predictions?${new URLSearchParams(asked)}`);

export const readModel = (name) => call(`/api/models/${encodeURIComponent(name)}`);
export const readImportance = (asked) => call(`/api/importance?${new URLSearchParams(asked)}`);
export const readExplanation = (asked) => call(`/api/explanation?${new URLSearchParams(asked)}`);

export const readForecast = (asked) => call(`/api/forecast?${new URLSearchParams(asked)}`);

export const readReasons = (asked) => call(`/api/forecast/reasons?${new URLSearchParams(asked)}`);

export const readPlan = (id) => call(`/api/runs/${id}/plan`);

const send = (id, action, body) =>
  call(`/api/runs/${id}/${action}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });

export const preview = (id, action, given) => send(id, action, { preview: true, with: given });
export const act = (id, action, given) => send(id, action, { with: given });
