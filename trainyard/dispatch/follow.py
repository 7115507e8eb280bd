"""Follow a run: show it, fetch outputs, notice a dead runner or cluster.

A run's last event says that it ended. Ray's job status, which changes up to a
second later, is only polled to notice a dead runner or cluster.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Literal

from trainyard_runner.wire.events import Event, OutputsKept, TaskEnded

from trainyard.dispatch.fetch import Fetcher
from trainyard.dispatch.reader import StreamReader
from trainyard.errors import OutsideError
from trainyard.results.journal import Journal, Output
from trainyard.results.state import RunState
from trainyard.seams.ray_api import NotRayError, RayApi, RefusedError
from trainyard.seams.ray_types import Job

# Seconds without an answer after which the cluster counts as lost (design: an error within 30 s).
GIVE_UP_AFTER = 20.0
# A system on the way to the cluster may be down, such as an API server during an update. Then
# GIVE_UP_AFTER begins at the end of the outage, at the latest this many seconds after the last
# answer.
OUT_OF_REACH_SECONDS = 180.0
ASK_EVERY = 2.0
# Ray may report the runner's end this many seconds before the runner's last lines can be read.
SETTLED_AFTER = 0.5
# With `catch_up`, wait at most this many seconds for the run to have a node and a stream.
CAUGHT_UP_WITHIN = 2.0
# Seconds before the user is told that the runner has not begun. Slow workers, or an image that must
# be pulled, may delay the runner.
BEGINS_WITHIN = 30.0
# Seconds for a run to stop: the runner's grace period, Ray's SIGKILL, the last event's delay.
STOP_WITHIN = 25.0

LOG_HINT = (
    "The runner's own output is in the dashboard, under Jobs (trainyard cluster.open). To resume it"
)
REPLACED_HINT = (
    "See whether all nodes are back: trainyard cluster.status (if not: cluster.up). Then resume it"
)

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
Ending = Literal["ended", "left", "not-stopped"]


class Screen:
    """Shows a run to a user; this base class only passes notes to `note`."""

    def __init__(self, *, note: Callable[[str], None] = lambda text: None) -> None:
        self._note = note

    def output(self, task: str, text: bytes) -> None:
        """Show a piece of a task's output, which may end inside a line."""

    def event(self, event: Event, state: RunState) -> None:
        """Show an event; `state` is the run's state after it."""

    def tick(self, state: RunState) -> None:
        """Update what changes with time, several times a second."""

    def note(self, text: str) -> None:
        self._note(text)

    def erase(self) -> None:
        """Erase a progress bar, because other code prints next."""

    def close(self) -> None:
        """End the display of this run."""


@dataclass
class Follower:
    """Follows a run: records and shows its events, and applies them to `state`.

    `fetcher` is None if nothing is to be fetched. `interrupted` says whether
    the user pressed Ctrl-C (or sent SIGTERM): the run is then stopped with
    `stop_on_interruption`; otherwise it continues, but is no longer followed.
    With `catch_up`, only the events written so far are read. `is_in_reach` is
    as in Endpoint.
    """

    ray: RayApi
    journal: Journal
    state: RunState
    fetcher: Fetcher | None = None
    screen: Screen = field(default_factory=Screen)
    interrupted: Callable[[], bool] = lambda: False
    stop_on_interruption: bool = False
    catch_up: bool = False
    is_in_reach: Callable[[], bool] = lambda: True

    def __post_init__(self) -> None:
        self._reader: StreamReader | None = None
        self._node_id = self.state.node_id
        self._began = time.monotonic()
        self._answered = self._began
        self._asked = 0.0
        self._ended_at = 0.0
        self._stopping_since = 0.0
        self._unknown_until = 0.0
        self._lost = False
        self._noted_that_nothing_began = False

    def follow(self) -> Ending:
        """Follow until the run has ended, or the user stops following.

        Returns "not-stopped" if a run was not stopped within STOP_WITHIN
        seconds. Raises OutsideError if the cluster is lost; with `catch_up`,
        after the first failed request.
        """
        try:
            return self._loop()
        finally:
            self.screen.erase()
            if self._reader:
                self._reader.close()

    def _loop(self) -> Ending:
        while not self.state.ended:
            if self.interrupted() and not self._stopping_since:
                if not self.stop_on_interruption:
                    return "left"
                self._stop()

            if self._stopping_since and time.monotonic() > self._stopping_since + STOP_WITHIN:
                return "not-stopped"

            pause = ASK_EVERY if self._reader else 0.1
            if time.monotonic() >= self._asked + pause:
                self._ask()

            self._take()
            if self.catch_up and self._caught_up():
                return "left"

            self.screen.tick(self.state)

        return "ended"

    def _caught_up(self) -> bool:
        if self._ended_at:
            # `_runner_gone` ends the run once the dead runner's last lines are read.
            return False
        if self._reader is None:
            return time.monotonic() > self._began + CAUGHT_UP_WITHIN
        return self._reader.has_read_all_of(self._began) or self._reader.problem is not None

    def _take(self) -> None:
        if self._reader is None:
            time.sleep(0.05)
            return
        for line in self._reader.lines(wait=0.1):
            new = self.journal.apply(line)
            if isinstance(new, Output):
                self.screen.output(new.task, new.text)
            elif new is not None:
                self._event(new)

    def _event(self, event: Event) -> None:
        self.state.apply(event)
        self.screen.event(event, self.state)
        if self._node_id and self.fetcher and self.journal.recording:
            self._fetch(self._node_id, self.fetcher, event)

    def _fetch(self, node_id: str, fetcher: Fetcher, event: Event) -> None:
        if isinstance(event, OutputsKept):
            fetcher.fetch(node_id, self.state.task(event.task))
        elif isinstance(event, TaskEnded):
            task = self.state.task(event.task)
            fetcher.fetch_checkpoints(node_id, self.state, among=[task])

    def _ask(self) -> None:
        """Ask Ray for the job; open its stream, or notice a dead runner."""
        self._asked = time.monotonic()
        try:
            job = self.ray.job(self.state.run)
        except (RefusedError, NotRayError):
            raise
        except OutsideError as error:
            self._note_failure(error)
            return

        self._answered = time.monotonic()
        if self._lost:
            self._lost = False
            self.screen.note("connected again")

        if self._reader is None and job and job.node_id:
            self._node_id = job.node_id
            self._reader = StreamReader(
                self.ray, self.state.run, job.node_id, segment=self.journal.segment
            )

        if job is None or job.ended:
            self._runner_gone(job)
        elif self.state.started is None and time.monotonic() > self._began + BEGINS_WITHIN:
            self._nothing_began(job)

    def _note_failure(self, error: OutsideError) -> None:
        """Note a failed request. Raises OutsideError if the cluster is lost."""
        if self.catch_up:
            raise error

        now = time.monotonic()
        last = self._answered
        if self._reader:
            last = max(last, self._reader.last_contact)
        if not self.is_in_reach():
            # A system on the way is down, so the cluster's own state is unknown.
            self._unknown_until = min(now, last + OUT_OF_REACH_SECONDS)

        if now > max(last, self._unknown_until) + GIVE_UP_AFTER:
            raise OutsideError(
                f"the cluster has not answered for {now - last:.0f} s; "
                "whether the run is still active is unknown",
                where=f"{self.ray.address} ({error.what})",
                hint=f"If the cluster comes back: trainyard train.logs {self.state.run}; "
                f"if not: trainyard cluster.up, then {self.state.resume_command}",
            ) from error

        if not self._lost:
            self._lost = True
            self.screen.note("connection to the cluster lost, trying again")

    def _nothing_began(self, job: Job) -> None:
        if self._noted_that_nothing_began:
            return
        self._noted_that_nothing_began = True
        message = _first_line(job)[:300]
        says = f"{job.status}: {message}" if message else job.status
        self.screen.note(
            f"the run's runner has not started in {BEGINS_WITHIN:.0f} s; Ray says {says}; "
            "for the state of the nodes: trainyard cluster.status; for the logs of Ray on them: "
            "trainyard cluster.logs"
        )

    def _runner_gone(self, job: Job | None) -> None:
        """Record the end of a dead runner's run, once all lines are read."""
        now = time.monotonic()
        self._ended_at = self._ended_at or now
        reader = self._reader
        settled = reader is None or reader.has_read_all_of(self._ended_at + SETTLED_AFTER)

        if reader and reader.problem:
            # The stream cannot be read: the node may be lost together with the runner.
            settled = now > self._ended_at + GIVE_UP_AFTER / 2

        if not settled:
            # Ask again in 0.3 s instead of ASK_EVERY, because the user only waits for this.
            self._asked = now - ASK_EVERY + 0.3
            return

        stopped = job is not None and job.status == "STOPPED"
        # The run may have ended hours ago.
        ended = (job.end if job else None) or self.state.last_contact or time.time()
        began = self.state.started or ended
        hint = LOG_HINT if job else REPLACED_HINT
        event = self.journal.end_for(
            _end_reason(job, self.state.checkpoints_at),
            state="stopped" if stopped else "failed",
            exit_code=1 if stopped else OutsideError.exit_code,
            seconds=round(max(0.0, ended - began), 3),
            hint=f"{hint}: {self.state.resume_command}",
        )
        self._event(event)

    def _stop(self) -> None:
        self._stopping_since = time.monotonic()
        self.screen.note("stopping the run (Ctrl-C again: quit without waiting) ...")
        try:
            self.ray.stop(self.state.run)
        except OutsideError as error:
            self.screen.note(f"could not ask Ray to stop the run: {error.what}")


def _end_reason(job: Job | None, checkpoints_at: str | None) -> str:
    if job is None:
        # Ray keeps its list of jobs in the head's memory: a missing job means a new head.
        replaced = "the cluster's head or the whole cluster was replaced: the run is lost"
        if checkpoints_at is None:
            return f"{replaced}, and so are checkpoints that were not fetched"
        return f"{replaced}, and its checkpoints are on the cluster's storage ({checkpoints_at})"

    if job.exit_code is None:
        code = ""
    else:
        code = f", exit code {job.exit_code}"

    # Ray appends the end of the log, with the whole text of the runner's bootstrap.
    message = _first_line(job).split(", last available logs")[0]
    return f"the runner died (Ray says {job.status}{code}: {message[:300]})"


def _first_line(job: Job) -> str:
    lines = job.message.strip().splitlines()
    return lines[0] if lines else ""


class Interrupts:
    """Catches Ctrl-C and SIGTERM.

    The first signal only makes `asked` true; the second raises
    KeyboardInterrupt. Before `hold`, there is no run to stop: the first signal
    raises KeyboardInterrupt, too.
    """

    def __init__(self, *, held: bool = False) -> None:
        self._held = held
        self._count = 0
        self._before: dict[int, object] = {}

    def asked(self) -> bool:
        return self._count > 0

    def hold(self) -> None:
        self._held = True

    def __enter__(self) -> Interrupts:
        # Python allows signal handlers only in the main thread.
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._came) for number in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)  # type: ignore[arg-type]

    def _came(self, number: int, frame: FrameType | None) -> None:
        self._count += 1
        if self._count > 1 or not self._held:
            raise KeyboardInterrupt
