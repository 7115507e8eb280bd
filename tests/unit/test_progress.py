"""The steps, as a terminal and as a CI log shows them."""

from __future__ import annotations

import io

from trainyard.console.progress import PlainProgress, for_stream
from trainyard.steps import StepResult


def test_a_pipe_gets_one_plain_line_per_step() -> None:
    stream = io.StringIO()
    progress = for_stream(stream)
    progress.started("Start the head")
    progress.finished(StepResult("Start the head", changed=True, seconds=3.21))
    progress.started("Join 3 hosts")
    progress.finished(StepResult("Join 3 hosts", changed=False, seconds=0.01))
    progress.started("Pull the image")
    progress.failed("Pull the image", 9.0)
    assert stream.getvalue() == (
        "  ok  Start the head (done, 3.2 s)\n  ok  Join 3 hosts (already)\n  FAILED  Pull the "
        "image (9.0 s)\n"
    )


def test_a_waiting_step_prints_one_line_per_change() -> None:
    stream = io.StringIO()
    progress = PlainProgress(stream)
    progress.started("Join 3 hosts")
    for seen in ("1 of 3 joined", "1 of 3 joined", "2 of 3 joined"):
        progress.saw("Join 3 hosts", seen)
    assert (
        stream.getvalue()
        == "  ... Join 3 hosts: 1 of 3 joined\n  ... Join 3 hosts: 2 of 3 joined\n"
    )


def test_bytes_that_count_on_are_not_a_line_each() -> None:
    stream, now = io.StringIO(), iter(range(0, 100, 4))
    progress = PlainProgress(stream, now=lambda: next(now))
    progress.started("Push")
    for megabytes in range(5):
        progress.saw("Push", f"{megabytes // 3} of 2 layers, {megabytes} of 9 MB")
    progress.saw("Push", "the registry answers")
    assert stream.getvalue().splitlines() == [
        "  ... Push: 0 of 2 layers, 0 of 9 MB",
        "  ... Push: 1 of 2 layers, 3 of 9 MB",
        "  ... Push: the registry answers",
    ]
