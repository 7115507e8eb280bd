"""The page of all runs, results/index.html, with links to their reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainyard import __version__
from trainyard.results import store
from trainyard.results.report import write_page
from trainyard.results.state import RunState
from trainyard.results.store import RunDirectory

PAGE = "index.html"


@dataclass(frozen=True)
class OverviewRow:
    """A run's row: its record, its state, and one word for the state."""

    run: RunDirectory
    record: Mapping[str, Any]
    state: RunState
    word: str

    @property
    def started(self) -> float | None:
        return store.started(self.record)

    @property
    def user(self) -> str:
        return "@".join(str(self.record[key]) for key in ("user", "host") if self.record.get(key))

    @property
    def has_report(self) -> bool:
        return self.run.report.exists()

    @property
    def best(self) -> float | None:
        if self.state.sweep is None:
            return None
        trial = self.state.sweep.best
        return trial.value if trial else None


def write_overview(rows: Sequence[OverviewRow], home: Path) -> Path:
    home.mkdir(parents=True, exist_ok=True)
    page = home / PAGE
    write_page(page, "overview.html.j2", {"rows": rows, "version": __version__})
    return page
