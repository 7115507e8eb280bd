"""Make, look at and remove clusters."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from invoke.context import Context

from trainyard.tasks import command_hints
from trainyard.tasks.command import task

if TYPE_CHECKING:
    from trainyard.lifecycle import Cluster

FILE = "Cluster file, or a bare name of clusters/ (default: $TRAINYARD_CLUSTER, else local)."
SET = "Set one value of the file: PATH=VALUE, such as workers.0.count=2; may be repeated."
BACKEND = "Use another backend than the file names."
JSON = "Print one JSON document."
PURGE = "Also the KubeRay operator, its CRDs and the namespace, if Trainyard made them and nobody else needs them."
END_RUNS = "End the runs that go on, if nodes have to go; without it, they are named and nothing is done."
SIZES = "GROUP=N: so many nodes; of a group that grows and shrinks, at least so many. Several may be given."
HELP = {"file": FILE, "set": SET, "backend": BACKEND, "json": JSON}


@task(
    iterable=["set_"],
    help={**HELP, "recreate": "Make every node anew, the head too; ends all that runs.", "end_runs": END_RUNS},
)
def up(
    context: Context,
    file: str | None = None,
    set_: list[str] | None = None,
    backend: str = "",
    json: bool = False,
    recreate: bool = False,
    end_runs: bool = False,
) -> None:
    """Make the cluster match its file."""
    from trainyard import lifecycle, progress
    from trainyard.tasks import cluster_output as output

    cluster = _find(file, set_, backend)
    if context.config.run.dry:
        output.planned(cluster, lifecycle.plan_up(cluster, recreate=recreate), json=json, up=" --recreate" * recreate)
        return
    output.begun(cluster)
    check = _check(cluster, f"cluster.up{' --recreate' * recreate}", end_runs=end_runs)
    results = lifecycle.up(cluster, progress.for_stream(), recreate=recreate, before_disruption=check)
    output.made(cluster, results, lifecycle.connect(cluster), json=json)


@task(iterable=["set_"], help={**HELP, "recreate": "Plan as if cluster.up were called with --recreate."})
def plan(
    context: Context,
    file: str | None = None,
    set_: list[str] | None = None,
    backend: str = "",
    json: bool = False,
    recreate: bool = False,
) -> None:
    """Say what cluster.up would change; change nothing."""
    from trainyard import lifecycle
    from trainyard.tasks import cluster_output as output

    cluster = _find(file, set_, backend)
    steps = lifecycle.plan_up(cluster, recreate=recreate)
    documents = lifecycle.documents(cluster, recreate=recreate) if json else ()
    output.planned(cluster, steps, json=json, up=" --recreate" * recreate, documents=documents)


@task(iterable=["set_"], help={**HELP, "purge": PURGE, "end_runs": END_RUNS})
def down(
    context: Context,
    file: str | None = None,
    set_: list[str] | None = None,
    backend: str = "",
    json: bool = False,
    purge: bool = False,
    end_runs: bool = False,
) -> None:
    """Remove the cluster, and prove that nothing is left."""
    from trainyard import lifecycle, progress
    from trainyard.tasks import cluster_output as output

    cluster = _find(file, set_, backend)
    if context.config.run.dry:
        steps = lifecycle.plan_down(cluster, purge=purge)
        output.planned(cluster, steps, json=json, up=" --purge" * purge, command="cluster.down")
        return
    output.begun(cluster)
    check = _check(cluster, f"cluster.down{' --purge' * purge}", end_runs=end_runs)
    results = lifecycle.down(cluster, progress.for_stream(), purge=purge, before_disruption=check)
    output.removed(cluster, results, json=json, purge=purge)


@task(iterable=["set_"], help=HELP)
def status(
    context: Context, file: str | None = None, set_: list[str] | None = None, backend: str = "", json: bool = False
) -> None:
    """Ask every node how it is, and what is in use."""
    from trainyard import lifecycle, usage
    from trainyard.tasks import cluster_output as output

    cluster = _find(file, set_, backend)
    now = lifecycle.status(cluster)
    output.status(cluster, now, usage.ask(now), json=json)


@task(positional=["sizes"], iterable=["sizes", "set_"], help={**HELP, "sizes": SIZES, "end_runs": END_RUNS})
def scale(
    context: Context,
    sizes: list[str] | None = None,
    file: str | None = None,
    set_: list[str] | None = None,
    backend: str = "",
    json: bool = False,
    end_runs: bool = False,
) -> None:
    """Give groups another number of nodes than the file says, as cluster.up would: cluster.scale gpu=3."""
    from trainyard import lifecycle, progress, scaling
    from trainyard.tasks import cluster_output as output

    cluster = _find(file, set_, backend)
    wanted = scaling.scaled(cluster, sizes or [])
    if context.config.run.dry:
        output.planned(wanted, lifecycle.plan_up(wanted), json=json)
        return
    command_hints.remember("cluster.scale", {"file": file, "set_": [*wanted.tools.overrides], "backend": backend})
    output.begun(wanted)
    check = _check(wanted, f"cluster.scale {shlex.join(sizes or [])}", end_runs=end_runs)
    results = lifecycle.up(wanted, progress.for_stream(), before_disruption=check)
    output.made(wanted, results, lifecycle.connect(wanted), json=json)
    output.resized(wanted, scaling.differences(cluster.spec, wanted.spec))


@task(iterable=["set_"], help=HELP)
def show(
    context: Context, file: str | None = None, set_: list[str] | None = None, backend: str = "", json: bool = False
) -> None:
    """Print the cluster file as resolved, defaults marked."""
    from trainyard.tasks import cluster_output as output

    output.shown(_find(file, set_, backend), json=json)


@task(name="list", help={"json": JSON})
def list_(context: Context, json: bool = False) -> None:
    """List the clusters that have a file here, and those that were made from files elsewhere."""
    from trainyard import listing
    from trainyard.tasks import cluster_output as output

    output.listed(listing.list_clusters(os.environ, directory=Path.cwd()), json=json)


@task(name="open", iterable=["set_"], help=HELP)
def open_(
    context: Context, file: str | None = None, set_: list[str] | None = None, backend: str = "", json: bool = False
) -> None:
    """Show where the dashboard is and how to log in; open it when there is a browser."""
    from trainyard import lifecycle
    from trainyard.tasks import cluster_output as output

    cluster = _find(file, set_, backend)
    lifecycle.connect(cluster)
    now = lifecycle.status(cluster)
    output.opened(cluster, now, json=json, browse=not context.config.run.dry)
    if now.tunnel and not context.config.run.dry:
        output.held(cluster, now)


@task(iterable=["set_"], help={**HELP, "follow": "Stay, and print what is added (default)."})
def logs(
    context: Context,
    file: str | None = None,
    set_: list[str] | None = None,
    backend: str = "",
    json: bool = False,
    follow: bool = True,
) -> None:
    """Print what the nodes' own log files say, each line with its node."""
    from trainyard import lifecycle
    from trainyard.tasks import cluster_output as output

    output.logged(lifecycle.logs(_find(file, set_, backend), follow=follow), json=json)


def _find(file: str | None, set_: list[str] | None, backend: str) -> Cluster:
    from trainyard import lifecycle

    return lifecycle.find(file, os.environ, directory=Path.cwd(), overrides=set_ or (), backend=backend or None)


def _check(cluster: Cluster, command: str, *, end_runs: bool) -> Callable[[], None]:
    """Return what asks for runs before nodes end; `command` is what was typed."""

    def check() -> None:
        # Here, not above: most commands end no nodes, and need none of what fetching outputs takes.
        from trainyard import ending, paths, progress
        from trainyard.tasks import cluster_output as output

        change = ending.Change(cluster, command, paths.results_home(os.environ, directory=Path.cwd()), end_runs)
        ending.check(change, progress.for_stream(), note=output.note)

    return check
