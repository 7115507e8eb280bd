"""The attempts of a run, laid out as bars over time, node by node; or as one area per node, when there are too many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainyard.results import formats, tables
from trainyard.results.state import KINDS, Attempt, RunState

_MOST_BARS = 1200
_MOST_ROWS = 32  # of bars side by side on one node
_MOST_NODES = 100
_MOST_CROSSES = 200
_BUCKETS = 240
_NARROWEST = 0.35  # percent: about 3 pixels of a wide page
_TICKS = 6
_NICE = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)


@dataclass(frozen=True)
class _Times:
    """When attempts began and ended, against the whole run's time."""

    state: RunState
    began: float
    span: float

    def ended(self, attempt: Attempt) -> float:
        return attempt.started + tables.seconds(self.state, attempt)

    def percent(self, moment: float) -> float:
        return round(min(max((moment - self.began) / self.span * 100, 0.0), 100.0), 3)


def build(state: RunState) -> dict[str, Any]:
    """Lay out all attempts of a run as the page takes it: lanes of nodes over the same time."""
    attempts = sorted(state.attempts(), key=lambda attempt: attempt.started)
    if not attempts:
        return {"lanes": ()}
    began = min(attempts[0].started, state.started or attempts[0].started)
    last = max(attempt.started + tables.seconds(state, attempt) for attempt in attempts)
    times = _Times(state, began, max(last - began, 0.1))
    by_node: dict[str, list[Attempt]] = {}
    for attempt in attempts:
        by_node.setdefault(attempt.node or "not placed", []).append(attempt)
    # The head first, then by name, with their numbers as numbers.
    nodes = sorted(by_node, key=lambda name: (name != "head", formats.natural(name)))
    lanes = [_lane(node, by_node[node], times, few=len(attempts) <= _MOST_BARS) for node in nodes[:_MOST_NODES]]
    bars = [bar for lane in lanes for bar in lane["bars"]]
    shown = {mark["kind"] for lane in lanes for mark in (*lane["bars"], *lane["crosses"])}
    return {
        "lanes": lanes,
        "ticks": _ticks(times.span),
        "kinds": [kind for kind in KINDS if kind in shown],
        "hidden_nodes": max(0, len(nodes) - _MOST_NODES),
        "restores": any(bar["restored"] for bar in bars),
        "checkpoints": any(bar["checkpoint"] is not None for bar in bars),
        "areas": any(lane["heights"] for lane in lanes),
    }


def _lane(node: str, attempts: Sequence[Attempt], times: _Times, *, few: bool) -> dict[str, Any]:
    """Return a node's attempts as bars, or how many ran at a time as heights from 0 to 1, with those that failed."""
    lane = {"node": node, "count": len(attempts), "bars": (), "heights": (), "crosses": ()}
    rows = _rows(attempts, times) if few else []
    if rows and max(rows) < _MOST_ROWS:
        bars = [_bar(attempt, row, times) for attempt, row in zip(attempts, rows, strict=True)]
        return {**lane, "rows": max(rows) + 1, "bars": bars}
    loads = _loads(attempts, times)
    most = max(loads)
    bad = [attempt for attempt in attempts if attempt.kind not in ("succeeded", "running")][:_MOST_CROSSES]
    crosses = [
        {"kind": each.kind, "title": _title(each, times), "left": times.percent(times.ended(each))} for each in bad
    ]
    return {**lane, "most": round(most), "heights": [round(load / most, 3) for load in loads], "crosses": crosses}


def _rows(attempts: Sequence[Attempt], times: _Times) -> list[int]:
    """Give every attempt the topmost row that is free when it starts."""
    free_at: list[float] = []
    rows = []
    for attempt in attempts:
        # Ends are worked out from rounded seconds: neighbours may seem to overlap by a few milliseconds.
        row = next((row for row, end in enumerate(free_at) if end <= attempt.started + 0.02), len(free_at))
        free_at[row : row + 1] = [times.ended(attempt)]
        rows.append(row)
    return rows


def _bar(attempt: Attempt, row: int, times: _Times) -> dict[str, Any]:
    """Return one attempt as a bar; left, width and checkpoint are in percent of the whole time."""
    left, end, saved = times.percent(attempt.started), times.ended(attempt), attempt.checkpoint_at
    width = min(max(times.percent(end) - left, _NARROWEST), 100.0)
    return {
        "kind": attempt.kind,
        "title": _title(attempt, times),
        "left": min(left, 100.0 - width),
        "width": round(width, 3),
        "row": row,
        "label": attempt.task,
        "restored": attempt.continues is not None,
        "checkpoint": times.percent(saved) if saved and attempt.started <= saved <= end + 5 else None,
    }


def _title(attempt: Attempt, times: _Times) -> str:
    took = formats.duration(tables.seconds(times.state, attempt))
    lines = [
        f"{attempt.task}, attempt {attempt.number} on {tables.where(attempt) or 'no node'}",
        f"{attempt.kind} after {took}" if attempt.outcome else f"running for {took}",
    ]
    if attempt.reason:
        lines.append(attempt.reason)
    if attempt.continues is not None:
        lines.append(f"continued from the last checkpoint of attempt {attempt.continues}")
    if attempt.checkpoint_at is not None:
        after = formats.duration(max(0.0, attempt.checkpoint_at - attempt.started))
        lines.append(f"{attempt.checkpoints} checkpoint{'s' * (attempt.checkpoints > 1)}, the last after {after}")
    return "\n".join(lines)


def _loads(attempts: Sequence[Attempt], times: _Times) -> list[float]:
    """Return how many attempts ran, on average, in each slice of the time."""
    loads = [0.0] * _BUCKETS
    for attempt in attempts:
        start = min(times.percent(attempt.started) / 100 * _BUCKETS, _BUCKETS - 0.01)
        end = max(times.percent(times.ended(attempt)) / 100 * _BUCKETS, start + 0.01)
        for bucket in range(int(start), min(int(end) + 1, _BUCKETS)):
            loads[bucket] += min(end, bucket + 1) - max(start, bucket)
    return loads


def _ticks(span: float) -> tuple[tuple[float, str], ...]:
    every = next((step for step in _NICE if span / step <= _TICKS), 86400 * max(1, round(span / 86400 / _TICKS)))
    return tuple((round(at / span * 100, 3), _tick(at)) for at in range(0, int(span) + 1, every))


def _tick(seconds: int) -> str:
    if seconds < 60:
        return f"{seconds} s"
    minutes, rest = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes}:{rest:02d} min" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d} h" if minutes else f"{hours} h"
