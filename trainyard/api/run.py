"""A run dispatched from Python, which a background thread follows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from trainyard_runner.wire.events import Event, TaskEnded

from trainyard.dispatch.follow import Screen
from trainyard.dispatch.runs import RunStatus, follow
from trainyard.endpoint import Endpoint
from trainyard.errors import NotReadyError
from trainyard.results.state import RunState, Task
from trainyard.results.store import RunDirectory
from trainyard.results.sweep import Trial
from trainyard.seams import threads
from trainyard.seams.ray_api import ray_of


class Run:
    """One dispatch of a job: wait, cancel, or iterate over tasks as they end.

    Outputs are fetched while the run is active. If this process ends first, the
    run continues on the cluster: `train.logs` follows it.
    """

    def __init__(self, directory: RunDirectory, endpoint: Endpoint, screen: Screen) -> None:
        self.name = directory.name
        self.is_awaited = False
        self._directory = directory
        self._endpoint = endpoint
        self._cancelled = threading.Event()
        self._heard = _Listener(screen)
        self._status = threads.begin(self._follow)
        self._status.add_done_callback(lambda _: self._heard.wake())

    @property
    def state(self) -> str:
        """Return waiting, running, succeeded, failed or stopped."""
        if self._heard.state:
            return self._heard.state.state
        return "waiting"

    @property
    def results(self) -> Path:
        """Return the run's directory: logs, outputs, report and input files."""
        return self._directory.path

    @property
    def report(self) -> Path:
        """Return the path of the HTML report, written when the run ends."""
        return self._directory.report

    @property
    def trials(self) -> tuple[Trial, ...]:
        """Return a sweep's trials so far: params, state, value and tasks."""
        sweep = self._heard.state and self._heard.state.sweep
        return tuple(sweep.trials.values()) if sweep else ()

    @property
    def best(self) -> Trial | None:
        """Return a sweep's best trial so far; None before one is complete."""
        sweep = self._heard.state and self._heard.state.sweep
        return sweep.best if sweep else None

    def outputs(self, task: str) -> Path:
        """Return a task's directory of outputs, complete only after `wait`."""
        return self._directory.outputs(task)

    def wait(self, *, check: bool = True) -> RunState:
        """Wait for the run's end and its results; return its final state.

        With `check`, raises the error that `train.dispatch` ends with:
        JobFailedError, SmokeError, OutsideError. Ctrl-C stops the run;
        KeyboardInterrupt is raised once the run has ended, or at once after a
        second Ctrl-C.
        """
        self.is_awaited = True
        self._until(self._status.done)
        status = self._status.result()
        if check and status.error:
            raise status.error
        return status.state

    def cancel(self) -> None:
        """Ask the run to stop; `wait(check=False)` then waits for its end."""
        self._cancelled.set()

    def __iter__(self) -> Iterator[Task]:
        """Yield each task as it ends; the loop ends when the run has ended."""
        ended = self._heard.ended
        count = 0

        def is_news() -> bool:
            return len(ended) > count or self._status.done()

        while count < len(ended) or not self._status.done():
            self._until(is_news)
            more = ended[count:]
            count += len(more)
            yield from more
        self._status.result()

    def __repr__(self) -> str:
        return f"<run {self.name}: {self.state}>"

    def _follow(self) -> RunStatus:
        with ray_of(self._endpoint) as ray:
            status = follow(
                ray,
                self._directory,
                self._endpoint,
                screen=self._heard,
                interrupted=self._cancelled.is_set,
                stop=True,
            )

        self._heard.conclude(status.state)
        if status.state.ended or status.error:
            return status

        raise NotReadyError(
            f"run {self.name} was asked to stop and has not reported its end",
            where=f"cluster {status.state.cluster}",
            hint=f"See: trainyard train.status {self.name}",
        )

    def _until(self, holds: Callable[[], bool]) -> None:
        """Wait until `holds()` returns True.

        After Ctrl-C, the run is stopped, and KeyboardInterrupt is raised once
        the run has ended.
        """
        try:
            self._heard.wait(holds)
        except KeyboardInterrupt:
            self.cancel()
            self._heard.wait(self._status.done)
            raise


class _Listener(Screen):
    """Passes events to a screen, and wakes threads that wait for tasks."""

    def __init__(self, shown: Screen) -> None:
        super().__init__(note=shown.note)
        self.state: RunState | None = None
        self.ended: list[Task] = []
        self._shown = shown
        self._changed = threading.Condition()

    def output(self, task: str, text: bytes) -> None:
        self._shown.output(task, text)

    def event(self, event: Event, state: RunState) -> None:
        self.state = state
        self._shown.event(event, state)
        if isinstance(event, TaskEnded):
            self.ended.append(state.task(event.task))
            self.wake()

    def conclude(self, state: RunState) -> None:
        """Keep the final state; unreported tasks have ended with the run."""
        self.state = state
        known = {task.name for task in self.ended}
        for task in state.tasks.values():
            if task.name not in known:
                self.ended.append(task)

    def wait(self, holds: Callable[[], bool]) -> None:
        with self._changed:
            self._changed.wait_for(holds)

    def wake(self) -> None:
        with self._changed:
            self._changed.notify_all()
