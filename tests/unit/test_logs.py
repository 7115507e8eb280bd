"""The nodes' log files that are worth reading."""

from __future__ import annotations

from trainyard.backends.contract import LogLine
from trainyard.operations.nodes import readable

LINES = [
    LogLine("head", "raylet.out", "[2026] [state-dump] NodeManager.deadline_timer - 12 total"),
    LogLine("head", "ray.log", "\x1b[37mLocal node IP\x1b[39m: \x1b[1m127.0.0.1\x1b[22m"),
]


def test_logs_have_no_colours_and_no_dumps_of_rays_state_unless_asked_for() -> None:
    plain = LogLine("head", "ray.log", "Local node IP: 127.0.0.1")
    assert list(readable(LINES, everything=False)) == [plain]
    assert list(readable(LINES, everything=True)) == [LINES[0], plain]
