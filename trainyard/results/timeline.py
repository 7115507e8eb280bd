"""The attempts of a run, laid out as bars over time, node by node; or as one area per node, when there are too many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainyard.results import formats
from trainyard.results.state import Attempt, Task
from trainyard.results.story import Saved, Story, attempts

KINDS = ("succeeded", "running", "failed", "timeout", "lost", "stopped")

_MOST_BARS = 1200
_MOST_ROWS = 32  # of bars side by side on one node
_MOST_NODES = 100
_MOST_CROSSES = 200
_BUCKETS = 240
_NARROWEST = 0.35  # percent: about 3 pixels of a wide page
_TICKS = 6
_NICE = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)


@dataclass(frozen=True)
class Bar:
    """One attempt; left, width and checkpoint in percent of the whole time."""

    left: float
    width: float
    row: int
    kind: str
    label: str
    title: str
    restored: bool
    checkpoint: float | None


@dataclass(frozen=True)
class Cross:
    """An attempt that did not succeed, on a lane that shows no bars."""

    left: float
    kind: str
    title: str


@dataclass(frozen=True)
class Lane:
    """One node. Either bars, or the number of attempts at a time as heights from 0 to 1."""

    node: str
    count: int
    rows: int
    bars: tuple[Bar, ...] = ()
    heights: tuple[float, ...] = ()
    most: int = 0
    crosses: tuple[Cross, ...] = ()


@dataclass(frozen=True)
class Timeline:
    """All lanes over the same time."""

    lanes: tuple[Lane, ...]
    ticks: tuple[tuple[float, str], ...]
    kinds: tuple[str, ...]
    hidden_nodes: int
    restores: bool
    checkpoints: bool
    areas: bool


@dataclass(frozen=True)
class _Placed:
    task: Task
    attempt: Attempt
    start: float
    end: float

    @property
    def kind(self) -> str:
        return kind(self.attempt)


def build(story: Story) -> Timeline:
    """Lay out all attempts of a run."""
    placed = [_Placed(task, one, one.started, story.ended_at(one)) for task, one in attempts(story)]
    if not placed:
        return Timeline((), (), (), 0, restores=False, checkpoints=False, areas=False)
    begin = min(min(one.start for one in placed), story.state.started or placed[0].start)
    span = max(max(one.end for one in placed) - begin, 0.1)
    scale = _Scale(begin, span)
    by_node: dict[str, list[_Placed]] = {}
    for one in sorted(placed, key=lambda one: one.start):
        by_node.setdefault(one.attempt.node or "not placed", []).append(one)
    nodes = sorted(by_node, key=_natural)
    as_bars = len(placed) <= _MOST_BARS
    lanes = tuple(_lane(story, node, by_node[node], scale, as_bars=as_bars) for node in nodes[:_MOST_NODES])
    shown = {bar.kind for lane in lanes for bar in lane.bars} | {one.kind for lane in lanes for one in lane.crosses}
    return Timeline(
        lanes,
        _ticks(span),
        tuple(word for word in KINDS if word in shown),
        max(0, len(nodes) - _MOST_NODES),
        restores=any(bar.restored for lane in lanes for bar in lane.bars),
        checkpoints=any(bar.checkpoint is not None for lane in lanes for bar in lane.bars),
        areas=any(lane.heights for lane in lanes),
    )


def kind(attempt: Attempt) -> str:
    """Return what became of an attempt, in one of the words that the page has a look for."""
    if attempt.outcome is None:
        return "running"
    return attempt.outcome if attempt.outcome in KINDS else "failed"


@dataclass(frozen=True)
class _Scale:
    begin: float
    span: float

    def percent(self, moment: float) -> float:
        return round(min(max((moment - self.begin) / self.span * 100, 0.0), 100.0), 3)


def _lane(story: Story, node: str, placed: Sequence[_Placed], scale: _Scale, *, as_bars: bool) -> Lane:
    rows = _rows(placed) if as_bars else []
    if rows and max(rows) < _MOST_ROWS:
        bars = tuple(_bar(story, one, row, scale) for one, row in zip(placed, rows, strict=True))
        return Lane(node, len(placed), max(rows) + 1, bars)
    loads = _loads(placed, scale)
    top = max(loads)
    bad = [one for one in placed if one.kind not in ("succeeded", "running")][:_MOST_CROSSES]
    crosses = tuple(Cross(scale.percent(one.end), one.kind, _title(story, one)) for one in bad)
    return Lane(
        node, len(placed), 2, heights=tuple(round(load / top, 3) for load in loads), most=round(top), crosses=crosses
    )


def _rows(placed: Sequence[_Placed]) -> list[int]:
    """Give every attempt the topmost row that is free when it starts."""
    free_at: list[float] = []
    rows = []
    for one in placed:
        # Ends are worked out from rounded seconds: neighbours may seem to overlap by a few milliseconds.
        row = next((row for row, end in enumerate(free_at) if end <= one.start + 0.02), len(free_at))
        free_at[row : row + 1] = [one.end]
        rows.append(row)
    return rows


def _bar(story: Story, one: _Placed, row: int, scale: _Scale) -> Bar:
    left = scale.percent(one.start)
    width = min(max(scale.percent(one.end) - left, _NARROWEST), 100.0)
    saved = story.saved.get((one.task.name, one.attempt.number))
    return Bar(
        min(left, 100.0 - width),
        round(width, 3),
        row,
        one.kind,
        one.task.name,
        _title(story, one),
        restored=(one.task.name, one.attempt.number) in story.restored,
        checkpoint=scale.percent(saved.at) if saved and one.start <= saved.at <= one.end + 5 else None,
    )


def _title(story: Story, one: _Placed) -> str:
    attempt = one.attempt
    lines = [
        f"{one.task.name}, attempt {attempt.number} on {story.where(one.task.name, attempt) or 'no node'}",
        f"{one.kind} after {formats.duration(one.end - one.start)}"
        if attempt.outcome
        else f"running for {formats.duration(one.end - one.start)}",
    ]
    if attempt.reason:
        lines.append(attempt.reason)
    lines += _checkpoint_lines(
        story.restored.get((one.task.name, attempt.number)), story.saved.get((one.task.name, attempt.number)), one.start
    )
    return "\n".join(lines)


def _checkpoint_lines(restored: Saved | None, saved: Saved | None, start: float) -> list[str]:
    lines = []
    if restored:
        lines.append(f"continued from the last checkpoint of attempt {restored.attempt}")
    if saved:
        after = formats.duration(max(0.0, saved.at - start))
        lines.append(f"{saved.count} checkpoint{'s' * (saved.count > 1)}, the last after {after}")
    return lines


def _loads(placed: Sequence[_Placed], scale: _Scale) -> list[float]:
    """Return how many attempts ran, on average, in each slice of the time."""
    partial = [0.0] * (_BUCKETS + 1)
    change = [0] * (_BUCKETS + 2)
    for one in placed:
        start, end = (scale.percent(moment) / 100 * _BUCKETS for moment in (one.start, one.end))
        first, last = int(start), int(end)
        if first == last:
            partial[first] += max(end - start, 0.01)
            continue
        partial[first] += first + 1 - start
        partial[last] += end - last
        change[first + 1] += 1
        change[last] -= 1
    whole, loads = 0, []
    for bucket in range(_BUCKETS):
        whole += change[bucket]
        loads.append(partial[bucket] + whole)
    return loads


def _ticks(span: float) -> tuple[tuple[float, str], ...]:
    every = next((step for step in _NICE if span / step <= _TICKS), 86400 * max(1, round(span / 86400 / _TICKS)))
    count = int(span / every)
    return tuple((round(index * every / span * 100, 3), _tick(index * every)) for index in range(count + 1))


def _tick(seconds: int) -> str:
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        minutes, rest = divmod(seconds, 60)
        return f"{minutes}:{rest:02d} min" if rest else f"{minutes} min"
    hours, rest = divmod(seconds, 3600)
    return f"{hours}:{rest // 60:02d} h" if rest else f"{hours} h"


def _natural(name: str) -> tuple[bool, list[str]]:
    """Sort names with their numbers as numbers, the head first."""
    return name != "head", formats.natural(name)
