"""Every pinned version, in one place."""

RAY = "2.60.0"
RUNNER_PROTOCOL = 1
