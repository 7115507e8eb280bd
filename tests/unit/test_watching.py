"""The report of an active run: rewritten when there is news, and no more often than loaded."""

from __future__ import annotations

from pathlib import Path

from tests.recorded_run import RecordedRun, started
from tests.run_events import an_event
from tests.unit.test_report import Page
from trainyard.console.run_screen import WRITE_EVERY, ReportScreen
from trainyard.results import state as states


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_page_is_written_at_first_then_with_news_and_at_last_for_good(tmp_path: Path) -> None:
    run = RecordedRun(tmp_path, "seed=0")
    started(run)
    run.event(1.0, "attempt-started", task="seed=0", attempt=1, node="cpu-0", node_id="x", gpus=[])
    run.write()
    clock = Clock()
    state = states.load(run.directory)
    screen = ReportScreen(run.directory, note=print, clock=clock)
    assert any("data-began" in attributes for _, attributes in Page(run.directory.report).elements)

    def is_rewritten() -> bool:
        run.directory.report.write_text("old")
        screen.tick(state)
        return run.directory.report.read_text() != "old"

    clock.now = WRITE_EVERY + 1
    assert not is_rewritten()
    screen.output("seed=0", b"a line")
    assert is_rewritten()
    screen.event(an_event("note", text="x"), state)
    assert not is_rewritten()
    clock.now *= 2
    assert is_rewritten()
    screen.close()
    assert 'id="refresh"' not in run.directory.report.read_text()
