"""The attempts of a run, laid out as bars over time, node by node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainyard.results import formats, tables
from trainyard.results.state import KINDS, Attempt, RunState

_MOST_BARS = 1200
_NARROWEST = 0.35  # percent: about 3 pixels of a wide page
_TICKS = 6


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
    """Lay out the first attempts of a run as the page takes it: lanes of nodes over the same time."""
    attempts = sorted(state.attempts(), key=lambda attempt: attempt.started)
    shown = attempts[:_MOST_BARS]
    if not shown:
        return {"lanes": ()}
    began = min(shown[0].started, state.started or shown[0].started)
    last = max(attempt.started + tables.seconds(state, attempt) for attempt in shown)
    times = _Times(state, began, max(last - began, 0.1))
    by_node: dict[str, list[Attempt]] = {}
    for attempt in shown:
        by_node.setdefault(attempt.node or "not placed", []).append(attempt)
    # The head first, then by name, with their numbers as numbers.
    nodes = sorted(by_node, key=lambda name: (name != "head", formats.natural(name)))
    lanes = [_lane(node, by_node[node], times) for node in nodes]
    bars = [bar for lane in lanes for bar in lane["bars"]]
    return {
        "lanes": lanes,
        "ticks": [(round(part / _TICKS * 100, 3), _tick(times.span * part / _TICKS)) for part in range(_TICKS)],
        "kinds": [kind for kind in KINDS if any(bar["kind"] == kind for bar in bars)],
        "left_out": len(attempts) - len(shown),
        "restores": any(bar["restored"] for bar in bars),
        "checkpoints": any(bar["checkpoint"] is not None for bar in bars),
    }


def _lane(node: str, attempts: Sequence[Attempt], times: _Times) -> dict[str, Any]:
    """Return a node's attempts as bars, each in the topmost row that is free when it starts."""
    free_at: list[float] = []
    bars = []
    for attempt in attempts:
        # Ends are worked out from rounded seconds: neighbours may seem to overlap by a few milliseconds.
        row = next((row for row, end in enumerate(free_at) if end <= attempt.started + 0.02), len(free_at))
        free_at[row : row + 1] = [times.ended(attempt)]
        bars.append(_bar(attempt, row, times))
    return {"node": node, "count": len(attempts), "rows": len(free_at), "bars": bars}


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


def _tick(seconds: float) -> str:
    return formats.duration(seconds) if seconds else "0"
