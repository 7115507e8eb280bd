"""A cluster as a context manager."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Literal, get_args

from trainyard.api import lazy
from trainyard.api.job import Job, Overrides, as_overrides
from trainyard.backends.contract import ClusterStatus
from trainyard.backends.shared.record import recorded_backend
from trainyard.console import progress
from trainyard.console.report import note
from trainyard.endpoint import Endpoint
from trainyard.errors import InterruptedRunError, RequestError, TrainyardError
from trainyard.operations import clusters
from trainyard.operations.cluster import Cluster as FoundCluster
from trainyard.operations.clusters import RunGuard
from trainyard.paths import Here
from trainyard.spec.cluster import ClusterSpec
from trainyard.wording import counted

if TYPE_CHECKING:
    from trainyard.api.run import Run
    from trainyard.dispatch.follow import Screen
    from trainyard.dispatch.plan import Prepared
    from trainyard.dispatch.smoke import Smoked


Teardown = Literal["made", "always", "never"]


@dataclass(frozen=True)
class _Block:
    """An open `with` block: its process, and the former handler of SIGTERM.

    The end of the block closes `inside`. Connecting `ray` closes `unconnected`.
    """

    process: int
    made_cluster: bool
    on_sigterm: Any
    inside: ExitStack = field(default_factory=ExitStack)
    unconnected: ExitStack = field(default_factory=ExitStack)


class Cluster:
    """A cluster that a file describes: `Cluster.from_file`.

    `with` makes the cluster, within `timeout` seconds if given, and runs the
    smoke test before it enters the block. At its end, the block waits for
    active runs, or stops them after an exception. Then the cluster is removed,
    unless it existed before. `teardown="always"` removes it in any case;
    `"never"` always leaves it.

    Steps are shown on stderr, and the output of tasks on stdout. A sweep's
    tasks show output only with `forward_logs=True`; with `False`, no task does.
    With `ray_env`, a runtime environment of Ray ({} for an empty one), `ray` is
    connected to the cluster in the block. If this program cannot reach the
    cluster's Ray, `ray.init` fails instead of starting a local Ray.
    """

    def __init__(
        self,
        cluster: FoundCluster,
        *,
        teardown: Teardown = "made",
        forward_logs: bool | None = None,
        timeout: float | None = None,
        ray_env: Mapping[str, Any] | None = None,
    ) -> None:
        if teardown not in get_args(Teardown):
            raise RequestError(
                f"teardown must be one of: {', '.join(get_args(Teardown))}; got {teardown!r}"
            )
        self._cluster = cluster
        self._teardown = teardown
        self._forward_logs = forward_logs
        self._timeout = timeout
        self._ray_env = ray_env
        self._runs: list[Run] = []
        self._blocks: list[_Block] = []
        # The runtime_env with which `ray` is connected to this cluster; None while unconnected.
        self._connected_with: dict[str, Any] | None = None

    @classmethod
    def from_file(
        cls,
        file: str | Path | None = None,
        *,
        set: Overrides = (),
        backend: str | None = None,
        teardown: Teardown = "made",
        forward_logs: bool | None = None,
        timeout: float | None = None,
        ray_env: Mapping[str, Any] | None = None,
    ) -> Cluster:
        """Find the cluster of -f, --set and --backend. Raises RequestError.

        >>> cluster = Cluster.from_file("demo", set={"workers.0.count": 1})
        >>> cluster.spec.workers[0].count
        1
        >>> Cluster.from_file("demo", set={"workers.0.cpu": 1})
        Traceback (most recent call last):
        trainyard.errors.RequestError: the cluster file is wrong: 1 problem
          - --set workers.0.cpu: is not a known key; did you mean 'cpus'?
        """
        asked = str(file) if file else None
        overrides = as_overrides(set)
        found = clusters.find(
            asked, dict(os.environ), directory=Path.cwd(), overrides=overrides, backend=backend
        )
        return cls(
            found, teardown=teardown, forward_logs=forward_logs, timeout=timeout, ray_env=ray_env
        )

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def spec(self) -> ClusterSpec:
        """Return the cluster file, with overrides and defaults."""
        return self._cluster.spec

    def ray(self, *, runtime_env: Mapping[str, Any] | None = None) -> ModuleType:
        """Connect `ray` to this cluster for the `with` block; return `ray`.

        Afterwards `ray.remote`, Ray Train and Ray Tune run on the cluster, with
        Ray's `runtime_env` if given. A second call in the block changes
        nothing. Raises RequestError outside a block, if `ray` is connected to
        another cluster or with another `runtime_env`, and if programs on this
        machine cannot reach the cluster's Ray.
        """
        if not self._blocks:
            hint = "with Cluster.from_file(...) as cluster: cluster.ray()"
            raise RequestError("ray() works only in a `with` block", hint=hint)
        if self._connected_with is None:
            self._connect_now(runtime_env or {})
        elif runtime_env is not None and dict(runtime_env) != self._connected_with:
            what = "ray is connected to this cluster already, with another runtime_env"
            raise RequestError(
                what,
                where="this program",
                hint="Pass runtime_env to the first call that connects in this `with` block.",
            )
        return sys.modules["ray"]

    def status(self) -> ClusterStatus:
        """Ask the cluster and its nodes for their state."""
        return clusters.status(self._cluster)

    def up(self, *, timeout: float | None = None) -> None:
        """Make the cluster match its file, like `cluster.up`; safe to repeat.

        Raises RequestError instead of ending active runs.
        """
        guard = _guard("cluster.up", end_runs=False)
        clusters.up(self._cluster, progress.for_stream(), guard=guard, timeout=timeout)

    def smoke(self) -> Smoked:
        """Run the smoke test. Raises SmokeError for a failed check."""
        smoked = lazy.smoke.smoke(clusters.connect(self._cluster), progress.for_stream())
        if smoked.error:
            raise smoked.error
        done = [check for check in smoked.checks if not check.skipped]
        note(f"smoke: {counted(len(done), 'check')} ok, {smoked.seconds:.1f} s")
        return smoked

    def down(self, *, end_runs: bool = False) -> None:
        """Remove the cluster, and prove that nothing is left.

        Raises RequestError while runs are active; with `end_runs` they are
        stopped and fetched.
        """
        guard = _guard("cluster.down", end_runs=end_runs)
        clusters.down(self._cluster, progress.for_stream(), guard=guard)

    def dispatch(self, job: Job | str | Path, *, skip_smoke: bool = False) -> Run:
        """Begin a run of a job, given as Job or by its directory.

        Returns as soon as the run has begun. Ctrl-C while the program waits for
        the run stops the run.
        """
        return self._dispatch(job, sweep=False, skip_smoke=skip_smoke)

    def tune(self, job: Job | str | Path, *, skip_smoke: bool = False) -> Run:
        """Begin a sweep: the run of a job with `tune:`.

        `trials` and `best` of the returned Run are updated while the sweep is
        active.
        """
        return self._dispatch(job, sweep=True, skip_smoke=skip_smoke)

    def resume(self, run: Run | str, job: Job | None = None, *, skip_smoke: bool = False) -> Run:
        """Begin a new run of the tasks that did not succeed in `run`.

        The tasks start from their last checkpoints. Without `job`, the job
        directory of the former run is used, as it is now. Raises RequestError
        if that run is active or a sweep, or if all its tasks succeeded.
        """
        here = _here()
        name = run if isinstance(run, str) else run.name
        former = lazy.runs.find_run(name, here)
        if job is None:
            flags = lazy.resume.flags_of_job(former)
            job = Job.from_directory(former.record()["job_directory"], set=flags)

        other = f"cluster.tune({str(job.directory)!r})"
        prepared = self._checked(job, sweep=False, other=other)
        prepared = lazy.resume.resumed(
            former,
            prepared,
            here=here,
            cluster=self.spec.name,
            screen=lazy.follow.Screen(note=note),
        )
        return self._begin(prepared, sweep=False, skip_smoke=skip_smoke)

    def _dispatch(self, job: Job | str | Path, *, sweep: bool, skip_smoke: bool) -> Run:
        if not isinstance(job, Job):
            job = Job.from_directory(job)
        method = "dispatch" if sweep else "tune"
        prepared = self._checked(job, sweep=sweep, other=f"cluster.{method}(job)")
        return self._begin(prepared, sweep=sweep, skip_smoke=skip_smoke)

    def _checked(self, job: Job, *, sweep: bool, other: str) -> Prepared:
        return lazy.new_run.checked(
            self._cluster,
            job.spec,
            job.directory,
            overrides=job.overrides,
            sweep=sweep,
            other=other,
        )

    def _begin(self, prepared: Prepared, *, sweep: bool, skip_smoke: bool) -> Run:
        begun, endpoint = lazy.new_run.dispatch(
            self._cluster,
            prepared,
            lazy.launch.Asked(_here().results, sys.argv, wait=False, skip_smoke=skip_smoke),
            progress=progress.for_stream(),
            note=note,
            screen=lazy.follow.Screen(),
        )

        run = lazy.run.Run(begun.run, endpoint, self._screen(sweep=sweep))
        self._runs.append(run)
        if begun.error:
            run.cancel()
            run.wait(check=False)
            raise KeyboardInterrupt from None

        return run

    def _screen(self, *, sweep: bool) -> Screen:
        if self._forward_logs is False:
            return lazy.follow.Screen()
        only = "" if sweep and not self._forward_logs else None
        return lazy.run_screen.PrintedScreen(sys.stdout, only=only, bar=False)

    def __enter__(self) -> Cluster:
        if self._ray_env is not None and self._connected_with is None:
            # Checked before a cluster is made: a `ray` connected elsewhere cannot connect to it.
            lazy.connection.refuse_connected()

        existed = self._exists()
        self._blocks.append(_Block(os.getpid(), not existed, _raise_on_sigterm()))

        try:
            self.up(timeout=self._timeout)
            self.smoke()
            if self._ray_env is None:
                self._refuse_until_connected()
            else:
                self._connect_or_refuse(self._ray_env)
        except BaseException as error:
            is_removed = self._leave()
            # After removal, the error must not name machines that cost money, or commands that
            # continue.
            if isinstance(error, InterruptedRunError):
                raise KeyboardInterrupt from None
            if is_removed and isinstance(error, TrainyardError):
                remaining = [one for one in error.problems if one.where != clusters.BILLED]
                error.problems = tuple(remaining)
            raise

        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait for runs that were not awaited; then apply `teardown`.

        After an exception, all runs of the block are stopped; otherwise errors
        of these runs are raised. A process forked in the block does nothing:
        its parent ends the block.
        """
        if self._blocks[-1].process != os.getpid():
            return

        has_failed = kind is not None
        runs = [run for run in self._runs if has_failed or not run.is_awaited]
        self._runs = []
        try:
            _finish(runs, stop=has_failed)
            if not has_failed:
                for run in runs:
                    run.wait()
        finally:
            self._leave()

    def __repr__(self) -> str:
        return f"<cluster {self.name} ({self.spec.backend})>"

    def _exists(self) -> bool:
        """Say whether the cluster exists, even if another backend made it."""
        recorded = recorded_backend(self._cluster.site.state)
        return recorded not in (None, self.spec.backend) or self.status().state != "absent"

    def _connect(self, endpoint: Endpoint, runtime_env: Mapping[str, Any]) -> None:
        forward_logs = self._forward_logs is not False
        inside = self._blocks[-1].inside
        inside.enter_context(
            lazy.connection.connected(endpoint, runtime_env=runtime_env, forward_logs=forward_logs)
        )
        self._connected_with = dict(runtime_env)
        inside.callback(setattr, self, "_connected_with", None)

    def _refuse_until_connected(self) -> None:
        """Make `ray.init` fail until `ray()` is called: no local Ray starts."""
        if self._connected_with is None:
            self._blocks[-1].unconnected.enter_context(
                lazy.connection.refused(self.name, is_reached=True)
            )

    def _connect_now(self, runtime_env: Mapping[str, Any]) -> None:
        for block in reversed(self._blocks):
            block.unconnected.close()
        try:
            self._connect(clusters.connect(self._cluster), runtime_env)
        except BaseException:
            self._refuse_until_connected()
            raise

    def _connect_or_refuse(self, runtime_env: Mapping[str, Any]) -> None:
        endpoint = clusters.connect(self._cluster)
        if endpoint.ray_address is None:
            self._blocks[-1].inside.enter_context(
                lazy.connection.refused(self.name, is_reached=False)
            )
        else:
            self._connect(endpoint, runtime_env)

    def _leave(self) -> bool:
        """End a block by `teardown`; return whether the cluster was removed."""
        block = self._blocks.pop()
        block.inside.close()
        block.unconnected.close()
        removes = self._teardown == "always" or (self._teardown == "made" and block.made_cluster)
        try:
            if removes:
                self.down(end_runs=True)
            return removes
        finally:
            if block.on_sigterm is not None:
                signal.signal(signal.SIGTERM, block.on_sigterm)


def _here() -> Here:
    """Look each time: a program may change its environment and directory."""
    return Here(os.environ, Path.cwd())


def _guard(command: str, *, end_runs: bool) -> RunGuard:
    return RunGuard(
        command,
        results=_here().results,
        note=lambda text: note(f"note: {text}"),
        end_runs=end_runs,
    )


def _finish(runs: Sequence[Run], *, stop: bool) -> None:
    """Wait for the end of all runs; with `stop` or after Ctrl-C, stop them."""
    try:
        if stop:
            for run in runs:
                run.cancel()
        for run in runs:
            run.wait(check=False)
    except KeyboardInterrupt:
        if not stop:
            _finish(runs, stop=True)
        raise


def _raise_on_sigterm() -> Any:
    """Let SIGTERM raise KeyboardInterrupt; return the former handler.

    Outside the main thread, or if the program has its own handler, this changes
    nothing and returns None.
    """
    before = signal.getsignal(signal.SIGTERM)
    if before is not signal.SIG_DFL or threading.current_thread() is not threading.main_thread():
        return None
    return signal.signal(signal.SIGTERM, signal.default_int_handler)
