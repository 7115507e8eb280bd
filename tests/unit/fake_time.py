"""A time that passes only while the code under test sleeps."""

from __future__ import annotations

from trainyard.steps import Clock


class FakeTime:
    """Seconds since the test began, in place of the module `time`."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def clock(self) -> Clock:
        return Clock(now=self.monotonic, sleep=self.sleep)
