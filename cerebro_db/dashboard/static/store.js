// What the page knows of the run that is shown; each answer brings what is new since the one before.

import { colours } from "./format.js";
import { differing, parts } from "./params.js";

export class Run {
  // Of a run of groups it has the configs of one of them, or none: an empty group is that of all rows.
  constructor(id, group = null) {
    this.id = id;
    this.group = group;
    this.run = null;
    this.configs = [];
    this.byKey = new Map();
    this.parts = new Map();
    this.names = [];
    this.next = {};
    this.metrics = new Map(); // "dataset metric" → {dataset, metric, higher, byKey: key → epoch → [value, when]}
    this.visits = new Map(); // "key:step" → visit
    this.losses = new Map(); // key → step → [loss of the visit, when it ended]
    this.decisions = [];
    this.costs = null; // once it has ended
    this.skew = 0;
  }

  take(answer) {
    this.run = answer.run;
    this.skew = answer.run.now - Date.now() / 1000;
    this.takeConfigs(answer.configs);
    for (const row of records(answer.metrics)) this.takeMetric(row);
    for (const row of records(answer.visits)) this.takeVisit(row);
    this.decisions.push(...records(answer.decisions));
    this.costs = answer.costs[0] ?? null;
    this.next = answer.next;
  }

  takeConfigs(configs) {
    const known = this.byKey;
    this.configs = configs;
    this.byKey = new Map(configs.map((config) => [config.mst_key, config]));
    this.colours = colours(configs, this.colours);
    const same = known.size === configs.length && configs.every((config) => known.has(config.mst_key));
    if (same) return;
    const net = nets(configs);
    this.parts = new Map(
      configs.map((c) => [c.mst_key, parts(c.fit_params, parts(c.compile_params, { net: net.get(c.model_id) }))]),
    );
    this.names = differing([...this.parts.values()]);
  }

  takeMetric(row) {
    const name = `${row.dataset} ${row.metric}`;
    if (!this.metrics.has(name))
      this.metrics.set(name, { dataset: row.dataset, metric: row.metric, higher: row.higher_is_better, byKey: new Map() });
    const { byKey } = this.metrics.get(name);
    if (!byKey.has(row.mst_key)) byKey.set(row.mst_key, new Map());
    byKey.get(row.mst_key).set(row.epoch, [row.value, row.at]);
  }

  takeVisit(row) {
    const name = `${row.unit ?? row.mst_key}:${row.step}`;
    if (this.visits.has(name)) return;
    this.visits.set(name, row);
    if (!this.losses.has(row.mst_key)) this.losses.set(row.mst_key, new Map());
    const losses = this.losses.get(row.mst_key);
    // Of folds the mean, as far as they have come.
    const [loss, , count] = losses.get(row.step) ?? [0, 0, 0];
    const mean = row.loss === null ? (count ? loss : null) : ((loss ?? 0) * count + row.loss) / (count + 1);
    losses.set(row.step, [mean, row.ended_at, count + (row.loss === null ? 0 : 1)]);
  }

  get live() {
    return this.run !== null && ["running", "paused"].includes(this.run.status);
  }

  // The server's clock now: this machine's may be another.
  get now() {
    return this.live ? Date.now() / 1000 + this.skew : this.run.ended_at;
  }

  get best() {
    const first = this.configs[0];
    return first && first.rank === 1 && first.value !== null ? first : null;
  }

  // What the leaderboard goes by, as it is named among the metrics.
  get deciding() {
    const config = this.configs.find((one) => one.metric);
    return config ? `${config.dataset} ${config.metric}` : null;
  }

  // The epoch after which all are compared although some are further on; null where each has its own.
  get comparedAt() {
    const measured = this.configs.filter((config) => config.measured_epoch !== null);
    const epochs = new Set(measured.map((config) => config.measured_epoch));
    const ahead = measured.some((config) => config.newest_epoch > config.measured_epoch);
    return this.live && epochs.size === 1 && ahead ? measured[0].measured_epoch : null;
  }

  // Lines of a chart: [{key, points: [[epoch or seconds, value, epoch], …]}].
  lines(measure, byTime = false) {
    const segments = this.run.segments;
    const [source, scale] = measure === "visits" ? [this.losses, segments] : [this.metrics.get(measure)?.byKey, 1];
    return [...(source ?? [])].map(([key, values]) => ({
      key,
      label: this.byKey.get(key)?.config_key ?? key,
      points: [...values]
        .filter(([, [value]]) => value !== null)
        .map(([epoch, [value, at]]) => [byTime ? at - this.run.started_at : epoch / scale, value, epoch / scale])
        .sort((a, b) => a[0] - b[0]),
    }));
  }

  // What each segment's session has used: segment → its visits that say so, in their order.
  get sessions() {
    const found = new Map();
    for (const visit of this.visits.values()) {
      if (visit.cpu_seconds === null) continue;
      if (!found.has(visit.segment)) found.set(visit.segment, []);
      const seconds = Math.max(visit.ended_at - visit.started_at, 0.001);
      found.get(visit.segment).push({ pid: visit.pid, from: visit.started_at, to: visit.ended_at, cpu: visit.cpu_seconds / seconds, memory: visit.memory_bytes });
    }
    for (const list of found.values()) list.sort((a, b) => a.to - b.to);
    return new Map([...found].sort((a, b) => a[0] - b[0]));
  }

  // About how long it still takes: the segments share the work, and no config can be in two places.
  get secondsLeft() {
    const left = this.configs.map((config) => config.seconds_left ?? 0);
    if (this.run.status !== "running" || !left.some((seconds) => seconds > 0)) return null;
    const sum = left.reduce((a, b) => a + b, 0);
    return Math.max(sum / this.run.segments, ...left);
  }
}

// What architectures are called; by their number as well where two have one name.
function nets(configs) {
  const named = new Map(configs.map((config) => [config.model_id, config.net ?? ""]));
  const names = [...named.values()];
  const label = (id, name) => (name && names.filter((one) => one === name).length === 1 ? name : `${name} ${id}`.trim());
  return new Map([...named].map(([id, name]) => [id, label(id, name)]));
}

function records(table) {
  return table.rows.map((row) => Object.fromEntries(table.columns.map((name, place) => [name, row[place]])));
}
