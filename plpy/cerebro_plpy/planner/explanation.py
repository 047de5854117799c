"""Explains a run from its estimate, before or after the run, as a tree of nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cerebro_plpy.planner.bundles import MOST_MEMBERS
from cerebro_plpy.planner.cuts import TrunkChoice
from cerebro_plpy.planner.estimating.estimates import Estimate
from cerebro_plpy.planner.estimating.group_work import fuses
from cerebro_plpy.planner.estimating.rates import SPREAD
from cerebro_plpy.planner.estimating.simulation import COMPILE, MEASURE, ONCE, READ, REST, TRAIN, WRITE
from cerebro_plpy.planner.estimating.tariffs import Tariff
from cerebro_plpy.planner.estimating.work import RunWork
from cerebro_plpy.planner.tree import DETAIL, NODE_TYPE, PLANS, Node, seconds

# The smallest share of waiting and the smallest gain of time that advice mentions.
MUCH_WAITING, MUCH_GAIN = 0.15, 0.05
MOST_KEYS = 12


@dataclass(frozen=True)
class Alternative:
    """An estimate of the run with one setting changed, for example another number of segments."""

    name: str
    estimate: Estimate
    # Whether the results would have other bits.
    other_bits: bool = False


@dataclass(frozen=True)
class Machine:
    memory_bytes: int
    disk_free_bytes: int | None
    # What its time costs.
    tariff: Tariff = Tariff()


@dataclass(frozen=True)
class Explained:
    """Everything that the explanation of a run is made from."""

    name: str
    estimate: Estimate
    settings: Mapping[str, Any]
    machine: Machine
    visits_known: int
    alternatives: Sequence[Alternative] = ()
    # Which configs share visits, in which form, and why.
    bundles: Sequence[Mapping[str, Any]] = ()
    # The least and the most seconds among a search's scenarios.
    low: float | None = None
    high: float | None = None
    configs: str | None = None
    notes: Sequence[str] = ()
    probed: bool = False


def tree(about: Explained) -> Node:
    found, work = about.estimate, about.estimate.work
    return {
        NODE_TYPE: about.name,
        DETAIL: about.configs or _configs(work),
        "Total Time": found.seconds,
        "Total Time Low": found.low if about.low is None else min(about.low, found.low),
        "Total Time High": found.high if about.high is None else max(about.high, found.high),
        "First Leaderboard Time": found.first_leaderboard,
        "Least Possible Time": found.bound,
        "Calibration": _calibration(about),
        "Settings": dict(about.settings),
        "Visits": found.played.visits,
        "Evaluations": found.played.evaluations,
        "Waiting Share": found.waiting,
        "Longest Config": _longest(found),
        "Rows": _rows(found),
        "Groups": _groups(work),
        "Row Bytes": int(sum(work.segment_bytes(s) for s in range(work.segments))) or None,
        "Session Memory Bytes": found.session_bytes,
        "Memory Bytes": found.session_bytes * work.sessions,
        "Machine Memory Bytes": about.machine.memory_bytes,
        "Moved State Bytes": found.moved_bytes,
        "Kept State Bytes": found.states_kept,
        "Log Bytes": found.log_bytes,
        "Disk Peak Bytes": found.states_peak,
        "Disk Free Bytes": about.machine.disk_free_bytes,
        "Bundles": [{**one, "Configs": one["Configs"][:MOST_KEYS]} for one in about.bundles],
        "Alternatives": [_alternative(about, other) for other in ranked(about.alternatives)],
        **bill(about.machine.tariff, found.core_seconds, found.gpu_seconds),
        "Advice": [*about.notes, *advice(about)],
        PLANS: nodes(found),
    }


def bill(tariff: Tariff, core_seconds: float, gpu_seconds: float, lead: str = "") -> Mapping[str, Any]:
    """Return the core and GPU time with its price and energy, which are None if no tariff is set.

    `lead` is put before the names of the properties.
    """
    return {
        f"{lead}Core Time": core_seconds,
        f"{lead}GPU Time": gpu_seconds or None,
        f"{lead}Price": tariff.price(core_seconds, gpu_seconds),
        f"{lead}Watt Hours": tariff.watt_hours(core_seconds, gpu_seconds),
    }


def nodes(found: Estimate) -> list[Node]:
    """Return the nodes that show on what the sessions spend their time."""
    work, played = found.work, found.played
    by_kind: dict[str, list[int]] = defaultdict(list)
    for key, kind in work.kinds.items():
        by_kind[kind.name].append(key)
    listed: list[Node] = []
    if found.starting:
        listed.append(
            {NODE_TYPE: "Start", DETAIL: counted(work.sessions, "session"), "Work Time": found.starting}
        )
    ordered = sorted(by_kind.values(), key=lambda keys: -_spent(found, TRAIN, keys))
    for keys in ordered:
        listed.append(_kind_node(found, keys))
    measuring = played.of_activity(MEASURE)
    if measuring:
        listed.append({NODE_TYPE: "Evaluate", "Evaluations": played.evaluations, "Work Time": measuring})
    listed.append({NODE_TYPE: "Begin and End", "Work Time": found.around})
    waits = found.waiting * (played.seconds * work.sessions)
    listed.append({NODE_TYPE: "Wait", "Work Time": waits})
    return listed


def _kind_node(found: Estimate, keys: Sequence[int]) -> Node:
    work = found.work
    kind = work.kinds[keys[0]]
    parts = {a: _spent(found, a, keys) for a in (TRAIN, COMPILE, ONCE, READ, WRITE, REST)}
    return {
        NODE_TYPE: "Train",
        DETAIL: f"{counted(len(keys), 'config')}{_on_groups(work)} of model {kind.model_id},"
        f" batch size {kind.batch_size}",
        "Work Time": sum(parts.values()),
        "Configs": list(keys[:MOST_KEYS]),
        "Parameters": kind.parameters,
        "Training Time": parts[TRAIN],
        "Compile Time": parts[COMPILE],
        "Read Time": parts[READ],
        "Write Time": parts[WRITE],
        "Between Visits Time": parts[REST],
        "State Bytes": kind.state_bytes,
        "Activation Bytes": work.activation_bytes(kind) or None,
        **({} if kind.step_bytes is None else {"Step Bytes": kind.step_bytes}),
        **({"Shards": kind.shards, "Device Bytes": kind.device_bytes} if kind.shards > 1 else {}),
        **({"Frozen Bytes": kind.frozen_bytes} if kind.frozen_bytes else {}),
        **({} if kind.trunk is None else _trunk(found, keys, kind.trunk, parts[ONCE])),
    }


def _trunk(found: Estimate, keys: Sequence[int], trunk: TrunkChoice, seconds: float) -> Node:
    """Return a node on the layers that are computed once: kept bytes, time taken, and time saved."""
    return {
        "Computed Once": f"{counted(len(trunk.names), 'layer')}, up to {', '.join(trunk.leaving)}",
        "Feature Bytes": trunk.row_bytes * (sum(found.work.rows) + sum(found.work.validation_rows)),
        "Feature Time": seconds,
        "Saved Time": max(0.0, sum(found.saved.get(key, 0.0) for key in keys) - seconds),
    }


def _on_groups(work: RunWork) -> str:
    return "" if work.groups is None else f" on {counted(_trained(work), 'group')}"


def _spent(found: Estimate, activity: str, keys: Sequence[int]) -> float:
    return found.played.of_activity(activity, keys)


def counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _calibration(about: Explained) -> str:
    if about.probed:
        return "timed just now, on invented rows"
    sources = about.estimate.sources
    worst = max(sources, key=lambda source: SPREAD[source], default="shipped")
    visits = about.visits_known
    if worst == "shipped" and not visits:
        return "never measured here: within a factor of 2"
    known = f"calibrated on {counted(visits, 'visit')} of this server"
    if worst == "measured":
        return f"{known}, these kinds of configs among them"
    if "measured" in sources:
        return f"{known}, some of these kinds of configs among them"
    return f"{known}, of other kinds of configs"


def _configs(work: RunWork) -> str:
    configs = counted(len(work.kinds), "config")
    return configs if work.groups is None else f"{configs} for each of {counted(_trained(work), 'group')}"


def _trained(work: RunWork) -> int:
    return work.models - bool(work.groups and work.groups.fallback)


def _groups(work: RunWork) -> str | None:
    """Return a sentence on where the groups lie and how they are trained, or None if there are no groups."""
    groups = work.groups
    if groups is None:
        return None
    home, cut = sum(map(len, groups.at_home)), len(groups.cut)
    bundles = sum(-(-len(own) // MOST_MEMBERS) for own in groups.at_home) * len(work.kinds)
    said = [f"{home} on one segment each, in {counted(bundles, 'bundle')}"]
    said += [f"{cut} cut over all segments"] if cut else []
    said += ["a model of all rows for the others"] if groups.fallback else []
    fused = [kind for kind in work.kinds.values() if fuses(groups, kind)]
    said += ["each bundle trains as one program"] if len(fused) == len(work.kinds) else []
    return "; ".join(said)


def _longest(found: Estimate) -> Mapping[str, Any] | None:
    if found.longest is None:
        return None
    return {"Config": found.longest[0], "Time": found.longest[1]}


def _rows(found: Estimate) -> str:
    work = found.work
    where = "streamed: they exceed memory_mb" if work.streams else "in memory"
    return f"{sum(work.rows)} for training, {sum(work.validation_rows)} for validation, {where}"


def ranked(alternatives: Sequence[Alternative]) -> list[Alternative]:
    return sorted(alternatives, key=lambda other: other.estimate.seconds)


def _alternative(about: Explained, other: Alternative) -> Mapping[str, Any]:
    return {
        DETAIL: other.name,
        "Total Time": other.estimate.seconds,
        "Change": other.estimate.seconds / about.estimate.seconds - 1 if about.estimate.seconds else 0.0,
        "Bits": "differ" if other.other_bits else None,
    }


def advice(about: Explained) -> list[str]:
    """Return advice on how to make the run faster, or how to fit it into memory and disk."""
    found, work = about.estimate, about.estimate.work
    said: list[str] = []
    if found.waiting > MUCH_WAITING and len(work.kinds) * work.models < 2 * work.segments:
        said.append(
            f"{counted(work.segments, 'segment')} wait {found.waiting:.0%} of the time:"
            f" {counted(len(work.kinds), 'config')} {'is' if len(work.kinds) == 1 else 'are'} too few"
        )
    for other in ranked(about.alternatives):
        change = other.estimate.seconds / found.seconds - 1 if found.seconds else 0.0
        if change < -MUCH_GAIN:
            bits = "; the results have other bits" if other.other_bits else ""
            said.append(f"{other.name}: {change:+.0%}{bits}")
    if found.session_bytes * work.sessions > about.machine.memory_bytes:
        said.append("the sessions need more memory than the machine has: lower memory_mb or segments")
    free = about.machine.disk_free_bytes
    if free is not None and found.states_peak + found.log_bytes > free:
        said.append("the disk has less room than states and log may need")
    if found.longest and found.longest[1] > 0.9 * found.seconds and len(work.kinds) > 1:
        said.append(
            f"config {found.longest[0]} alone takes {seconds(found.longest[1])}: the others wait for it"
        )
    return said
