"""Find, make, query, mend and remove a cluster, by its backend's steps."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainyard import lock, paths, steps
from trainyard.backends.contract import (
    ClusterStatus,
    Finding,
    Site,
    Verified,
)
from trainyard.backends.shared import leash
from trainyard.backends.shared.record import made_from, made_with, recorded_backend, write_made_from
from trainyard.endpoint import Endpoint
from trainyard.errors import (
    InterruptedRunError,
    LeftoverError,
    NotReadyError,
    Problem,
    RequestError,
    TrainyardError,
)
from trainyard.operations.cluster import Cluster, as_made
from trainyard.spec.load import load_cluster
from trainyard.steps import PlannedStep, Progress, Stage, Step, StepResult

if TYPE_CHECKING:
    from trainyard.operations.run_guard import Ends

# `Problem.where` of the machines that still run and cost money.
BILLED = "runs, and costs"


@dataclass(frozen=True)
class RunGuard:
    """How a change of a cluster treats the runs that it would end.

    With `end_runs` the runs are ended, else the change is refused. `command` is
    the change as typed, without `--end-runs`, for hints. `results` is the
    directory of runs dispatched from this machine. `note` shows a line to the
    user.
    """

    command: str
    results: Path
    note: Callable[[str], None]
    end_runs: bool = False


@dataclass(frozen=True)
class Made:
    """A cluster that is up."""

    steps: list[StepResult]
    endpoint: Endpoint


def find(
    asked: str | None,
    environ: Mapping[str, str],
    *,
    directory: Path,
    overrides: Sequence[str] = (),
    backend: str | None = None,
) -> Cluster:
    """Find the cluster of these flags (`asked` is -f). Raises RequestError."""
    source = paths.cluster_file(asked, environ, directory=directory)
    loaded = load_cluster(source, overrides=overrides, backend=backend)
    site = Site(
        state=paths.cluster_state(loaded.spec.name, environ),
        environ=environ,
        backend=loaded.spec.backend,
        source=source,
        overrides=tuple(overrides),
        directory=directory,
    )
    return Cluster(loaded, site, backend_flag=backend)


def refuse_unmade(cluster: Cluster) -> None:
    """Raise RequestError for a `--set` that the cluster was made without.

    Every `--set` passes if this machine has no record of the cluster, or
    Trainyard did not make it.
    """
    made = made_with(cluster.site.state)
    source = cluster.site.source
    if made is None or source is None or not cluster.backend.traits.makes_nodes:
        return

    # `cluster.scale` recorded its sizes as overrides, which later commands do not repeat.
    unmade = [text for text in cluster.site.overrides if text not in made]
    backend = cluster.backend_flag
    before = load_cluster(source, overrides=made, backend=backend)
    after = load_cluster(source, overrides=[*made, *unmade], backend=backend)
    if after.spec == before.spec:
        return

    made_flags = [f"--set {shlex.quote(text)}" for text in made]
    unmade_flags = [f"--set {shlex.quote(text)}" for text in unmade]
    flags = " ".join([*made_flags, *unmade_flags])
    raise RequestError(
        f"cluster {cluster.spec.name} was made without {', '.join(unmade_flags)}, and a run does "
        "not change it",
        where=paths.shown(source),
        hint=f"Change it first: trainyard cluster.up -f {paths.shown(source)} {flags}",
    )


def refuse_without_registry(cluster: Cluster) -> None:
    """Raise RequestError if nodes pull images, but the file names no registry.

    The default registry, on this machine's loopback, cannot be reached from
    other hosts.
    """
    if cluster.backend.traits.nodes_pull and cluster.spec.registry is None:
        # Imported here, because the module loads docker.
        from trainyard.images import resolve

        raise resolve.no_registry(cluster.spec, where=paths.shown(cluster.loaded.source))


def removing(cluster: Cluster, *, remove: bool, force: bool) -> Cluster:
    """Let `up` remove hosts that the cluster's file no longer has.

    Raises RequestError for a backend without hosts, and for `force` without
    `remove`.
    """
    if not cluster.backend.traits.joins_hosts:
        raise RequestError(
            f"cluster {cluster.spec.name} ({cluster.spec.backend}) has no hosts that could leave "
            "its file",
            hint="Leave out --remove.",
        )
    if not remove:
        raise RequestError("--force works only together with --remove", hint="Give --remove too.")
    return replace(cluster, site=cluster.site.wishing(remove=True, force=force))


def asking(cluster: Cluster, *, adopt: bool = False, keep_disks: bool = False) -> Cluster:
    """Apply these flags, or raise RequestError if the backend lacks one."""
    backend, site = as_made(cluster)
    for flag, is_given in {"--adopt": adopt, "--keep-disks": keep_disks}.items():
        if is_given and flag not in backend.traits.flags:
            raise RequestError(f"backend {site.backend!r} has no {flag}", hint=f"Leave out {flag}.")
    return replace(cluster, site=cluster.site.wishing(adopt=adopt, keep_disks=keep_disks))


def up(
    cluster: Cluster,
    progress: Progress,
    *,
    guard: RunGuard,
    recreate: bool = False,
    timeout: float | None = None,
) -> Made:
    """Make the cluster match its file, and connect to it.

    Before nodes end, results of runs are fetched, and with `guard.end_runs`
    active runs are ended. After an interruption or an error, the same call can
    be repeated. Raises NotReadyError after `timeout` seconds, and RequestError
    if active runs would end without `guard.end_runs`. Other errors name the
    machines that still cost money.
    """
    check = _settling(cluster, progress, guard=guard, ends="head" if recreate else "nodes")
    site = cluster.site.wishing(recreate=recreate)
    with _alone(cluster, progress):
        refuse_other_file(cluster)
        _refuse_other_backend(cluster)
        _refuse_leash(cluster)
        overrides = site.overrides
        before = made_with(site.state)
        if before is None:
            before = overrides

        try:
            up_steps = steps.within(timeout, cluster.backend.up_steps(cluster.spec, site))
            results = steps.run(up_steps, progress, before_disruption=check)
        except KeyboardInterrupt:
            hint = (
                "What was made stays. To continue: trainyard cluster.up; to remove it: "
                "trainyard cluster.down"
            )
            raise InterruptedRunError("interrupted", hint=hint, problems=_billed(cluster)) from None
        except RequestError:
            # A change that was refused leaves the cluster as it was made before.
            overrides = before
            raise
        except TrainyardError as error:
            error.problems += _billed(cluster)
            raise
        finally:
            # After a failure, too: the next command must know which file made the cluster.
            if site.source and site.state.exists():
                write_made_from(site.state, site.source.resolve(), overrides)

    return Made(results, connect(cluster))


def plan_up(
    cluster: Cluster, progress: Progress | None = None, *, recreate: bool = False
) -> list[PlannedStep]:
    refuse_other_file(cluster)
    _refuse_other_backend(cluster)
    _refuse_leash(cluster)
    site = cluster.site.wishing(recreate=recreate)
    return steps.plan(cluster.backend.up_steps(cluster.spec, site), progress)


def documents(cluster: Cluster, *, recreate: bool = False) -> list[dict[str, Any]]:
    """Return what `up` would send to an outside system, without secrets."""
    site = cluster.site.wishing(recreate=recreate)
    return cluster.backend.documents(cluster.spec, site)


def down(
    cluster: Cluster, progress: Progress, *, guard: RunGuard, purge: bool = False
) -> list[StepResult]:
    """Remove the cluster, and prove that nothing is left.

    The recorded backend removes the cluster, even if the file names another
    backend now. `purge` also removes shared objects that Trainyard made; if
    another cluster needs them, nothing at all is removed. Before nodes end,
    results of runs are fetched. With `guard.end_runs`, active runs are ended;
    without, RequestError is raised for them. Raises LeftoverError if something
    stays.
    """
    check = _settling(cluster, progress, guard=guard, ends="cluster")
    with _alone(cluster, progress):
        try:
            return steps.run(_down_steps(cluster, purge=purge), progress, before_disruption=check)
        except KeyboardInterrupt:
            hint = "What is not removed yet stays. To continue, repeat the same command."
            raise InterruptedRunError("interrupted", hint=hint, problems=_billed(cluster)) from None
        except NotReadyError as error:
            raise LeftoverError(error.what, where=error.where, hint=error.hint) from error


def plan_down(
    cluster: Cluster, progress: Progress | None = None, *, purge: bool = False
) -> list[PlannedStep]:
    return steps.plan(_down_steps(cluster, purge=purge), progress)


def status(cluster: Cluster) -> ClusterStatus:
    """Ask for the state; a `remark` says if the leash ended the cluster."""
    refuse_other_file(cluster)
    now = cluster.backend.status(cluster.spec, cluster.site)
    remarks = (now.remark, leash.ended(now, cluster.site.state))
    return replace(now, remark="; ".join(filter(None, remarks)))


def diagnose(cluster: Cluster) -> list[Finding]:
    """List backend findings, broken nodes, and differences from the file."""
    now = status(cluster)
    below = cluster.backend.diagnose(cluster.spec, cluster.site)
    if now.state == "absent":
        return [*below]

    if cluster.backend.traits.makes_nodes:
        remedy = "trainyard cluster.up"
    else:
        remedy = "Ask its administrator."

    broken = [node for node in now.nodes if node.state in ("absent", "broken")]
    findings = [*below]
    for node in broken:
        findings.append(Finding(node.name, node.detail or f"the node is {node.state}", remedy))
    if now.state == "broken" and not broken:
        findings.append(Finding(now.name, now.detail or "nothing works", remedy))
    for difference in now.differences:
        findings.append(Finding(now.name, f"differs from its file: {difference}", remedy))
    return findings


def mend(cluster: Cluster, findings: Sequence[Finding], progress: Progress) -> list[StepResult]:
    """Run the steps that mend these findings, each once."""
    by_id = {}
    for finding in findings:
        for step in (finding.step, *finding.then):
            if step:
                by_id[step.id] = step

    with _alone(cluster, progress):
        return steps.run(list(by_id.values()), progress)


def connect(cluster: Cluster) -> Endpoint:
    """Return the cluster's endpoint.

    Raises NotReadyError, which says if the leash ended the cluster.
    """
    refuse_other_file(cluster)
    try:
        return cluster.backend.connect(cluster.spec, cluster.site)
    except NotReadyError as error:
        remark = status(cluster).remark if leash.is_recorded(cluster.site.state) else ""
        if not remark:
            raise
        what = f"{error.what}: {remark}"
        raise NotReadyError(what, where=error.where, hint=error.hint) from error


def verify(cluster: Cluster, *, report: Callable[[str], None]) -> Verified:
    """Let each host pull and run the image.

    Raises RequestError if nodes are not containers.
    """
    return cluster.backend.verify(cluster.spec, cluster.site, report=report)


def _settling(
    cluster: Cluster, progress: Progress, *, guard: RunGuard, ends: Ends
) -> Callable[[], None]:
    """Return the `before_disruption` that refuses to end runs, or ends them."""

    def settle() -> None:
        # Imported here, because most changes end no nodes.
        from trainyard.operations import run_guard

        run_guard.settle(
            cluster,
            guard.command,
            progress,
            results=guard.results,
            end_runs=guard.end_runs,
            ends=ends,
            note=guard.note,
        )

    return settle


def _alone(cluster: Cluster, progress: Progress) -> AbstractContextManager[None]:
    state = cluster.site.state
    path = state.with_name(f"{state.name}.lock")
    return lock.alone(path, progress, keep=state.exists, what="cluster")


def _down_steps(cluster: Cluster, *, purge: bool) -> Sequence[Step | Stage]:
    # `--set name=NAME` chooses a cluster without its file: `cluster.list` prints such commands.
    if not cluster.site.overriding("name"):
        refuse_other_file(cluster)
    backend, site = as_made(cluster)
    if purge and not backend.traits.leaves:
        raise RequestError(
            f"backend {site.backend!r} has nothing to purge: `cluster.down` removes all that it "
            "made",
            hint="Leave out --purge.",
        )
    return backend.down_steps(cluster.spec, site, purge=purge)


def _billed(cluster: Cluster) -> tuple[Problem, ...]:
    """Name the machines that still cost money."""
    backend, site = as_made(cluster)
    with suppress(TrainyardError):
        names = backend.billed(cluster.spec, site)
        if names:
            return (Problem(BILLED, f"{', '.join(names)}; to end it: trainyard cluster.down"),)
    return ()


def refuse_other_file(cluster: Cluster) -> None:
    """Raise RequestError if a file that exists elsewhere made the cluster."""
    before = made_from(cluster.site.state)
    source = cluster.site.source
    if before is None or source is None or not before.exists() or not source.exists():
        return
    if before.parent == source.resolve().parent:
        return
    raise RequestError(
        f"cluster {cluster.spec.name} was made from {before}, not from this file",
        where=str(source),
        hint="Give yours another name (`name:` in the file). For that cluster: trainyard "
        f"cluster.status -f {before}",
    )


def _refuse_leash(cluster: Cluster) -> None:
    if cluster.spec.leash and not cluster.backend.traits.has_leash:
        raise RequestError(
            f"a cluster of the backend {cluster.spec.backend!r} cannot end itself",
            where=str(cluster.loaded.source),
            hint="Leave out `leash`.",
        )


def _refuse_other_backend(cluster: Cluster) -> None:
    recorded = recorded_backend(cluster.site.state)
    if recorded and recorded != cluster.spec.backend:
        raise RequestError(
            f"cluster {cluster.spec.name} was made by the backend {recorded!r}; its file says "
            f"{cluster.spec.backend!r}",
            where=str(cluster.loaded.source),
            hint="Remove it first: trainyard cluster.down",
        )
