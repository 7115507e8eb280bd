"""The tasks cluster.*: make, inspect and remove clusters."""

from __future__ import annotations

import json
import os
import shlex
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainyard import paths
from trainyard.api import lazy
from trainyard.console import command_hints, report
from trainyard.console.report import Report, Table, note, step_documents
from trainyard.errors import RequestError, TrainyardError
from trainyard.tasks.cluster_status import (
    findings_report,
    shown_address,
    shown_state,
    status_report,
)
from trainyard.tasks.command import CLUSTER, Call, task
from trainyard.wording import counted

if TYPE_CHECKING:
    from trainyard.backends.contract import ClusterStatus
    from trainyard.operations.cluster import Cluster
    from trainyard.operations.cluster_list import ListedCluster
    from trainyard.operations.clusters import RunGuard
    from trainyard.steps import PlannedStep, StepResult

# Words for states whose --json name is unclear in a table.
_STATES = {"recorded": "not asked"}
NODES_ON_LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
NODE = "The name of a node, as cluster.status shows it, or of a host of the cluster file."
PORT = "The node's port, or HERE:PORT to open port HERE of this machine (0: any free one)."
ALL = "Also print the lines in which Ray dumps its own state."
FOLLOW = "Keep printing new lines (default)."
END_RUNS = (
    "Stop active runs if their nodes are to be removed; without this flag, the command lists the "
    "runs and does nothing."
)
PURGE = (
    "Also remove the KubeRay operator, its CRDs and the namespace, if Trainyard made them and no "
    "other cluster needs them."
)
RECREATE = "Replace every node, also the head; this ends all runs."
REMOVE = (
    "Drain hosts that the file no longer names, and let them leave the cluster as they were found."
)
FORCE = "With --remove: also remove hosts that cannot be reached and will not come back."
ADOPT = (
    "Take over an existing cluster of this name: of another tool (kuberay, microk8s), or of plain "
    "`ray up` (ec2)."
)
ALL_OF = (
    "Remove all clusters that this machine made and whose names begin with ALL, after a question."
)
YES = "With --all: do not ask."
KEEP_DISKS = "Keep the nodes' disks, which still cost money; they are listed (ec2)."
REGION = "Also search this region of AWS, or `all`, for clusters that no file or record names."
_CONTEXT = "Also list the RayClusters that another tool made on the Kubernetes of this context."
SIZES = (
    "GROUP=N: the group gets N nodes; a group that autoscales gets N as its minimum. Several may be "
    "given."
)


@task(
    *CLUSTER,
    dry=True,
    help={
        "recreate": RECREATE,
        "remove": REMOVE,
        "force": FORCE,
        "adopt": ADOPT,
        "end_runs": END_RUNS,
    },
)
def up(
    call: Call,
    recreate: bool = False,
    remove: bool = False,
    force: bool = False,
    adopt: bool = False,
    end_runs: bool = False,
) -> Report:
    """Make the cluster match its file."""
    cluster, command = _meant(call, recreate=recreate, remove=remove, force=force, adopt=adopt)
    if call.dry:
        steps = lazy.clusters.plan_up(cluster, call.progress, recreate=recreate)
        return planned(cluster, steps, command)
    return _made(call, cluster, command, recreate=recreate, end_runs=end_runs)


@task(
    *CLUSTER,
    dry=True,
    help={
        "recreate": "Plan as if cluster.up were called with --recreate.",
        "remove": REMOVE,
        "force": FORCE,
        "adopt": ADOPT,
    },
)
def plan(
    call: Call,
    recreate: bool = False,
    remove: bool = False,
    force: bool = False,
    adopt: bool = False,
) -> Report:
    """Say what cluster.up would change; change nothing."""
    cluster, command = _meant(call, recreate=recreate, remove=remove, force=force, adopt=adopt)
    steps = lazy.clusters.plan_up(cluster, call.progress, recreate=recreate)
    documents = lazy.clusters.documents(cluster, recreate=recreate) if call.json else ()
    return planned(cluster, steps, command, documents=documents)


@task(
    *CLUSTER,
    dry=True,
    help={
        "purge": PURGE,
        "keep_disks": KEEP_DISKS,
        "adopt": ADOPT,
        "end_runs": END_RUNS,
        "all": ALL_OF,
        "yes": YES,
    },
)
def down(
    call: Call,
    purge: bool = False,
    keep_disks: bool = False,
    adopt: bool = False,
    end_runs: bool = False,
    all: str | None = None,
    yes: bool = False,
) -> Report:
    """Remove the cluster, and prove that nothing is left."""
    if all is not None:
        has_others = purge or keep_disks or adopt
        return _all_down(call, all, yes=yes, end_runs=end_runs, has_others=has_others)

    cluster = lazy.clusters.asking(call.cluster(), adopt=adopt, keep_disks=keep_disks)
    flags = {"--purge": purge, "--keep-disks": keep_disks, "--adopt": adopt}
    command = _flagged("cluster.down", flags)
    if call.dry:
        steps = lazy.clusters.plan_down(cluster, call.progress, purge=purge)
        return planned(cluster, steps, command)

    guard = _begin(call, cluster, command, end_runs=end_runs)
    if not cluster.backend.traits.makes_nodes:
        _remove_leftovers(call, cluster)

    results = lazy.clusters.down(cluster, call.progress, guard=guard, purge=purge)
    return _removed(cluster, results, purge=purge, keep_disks=keep_disks)


def _all_down(call: Call, prefix: str, *, yes: bool, end_runs: bool, has_others: bool) -> Report:
    """Remove all clusters with a prefix, after the user's consent."""
    if has_others or call.file or call.overrides or call.backend:
        raise RequestError(
            "--all can be combined only with --yes and --end-runs",
            hint="Leave out the other flags.",
        )

    here = call.here
    clusters, stay = lazy.cluster_list.to_remove(here.environ, prefix, directory=here.directory)
    notes = [f"note: {line}" for line in stay]
    if not clusters:
        line = f"no cluster whose name begins with {prefix!r} is up"
        return Report({"clusters": []}, [line], notes=notes)

    names = []
    rows = []
    for cluster in clusters:
        spec = cluster.spec
        names.append(spec.name)
        rows.append((spec.name, spec.backend, paths.shown(cluster.loaded.source)))
    table = Table(("cluster", "backend", "file"), rows)
    if call.dry:
        return Report({"would": names}, [table], notes=[*notes, "nothing was done (--dry)"])

    change = f"remove {counted(len(names), 'cluster')} ({', '.join(names)})"
    can_ask = not call.json
    if not yes and not (can_ask and report.confirmed(f"{change}?", table)):
        raise RequestError(f"{change}: not without a yes", hint="Give --yes, or answer y.")

    for cluster in clusters:
        guard = _begin(call, cluster, "cluster.down", end_runs=end_runs)
        lazy.clusters.down(cluster, call.progress, guard=guard, purge=False)

    return Report(
        {"clusters": names},
        [f"removed: {', '.join(names)}"],
        notes=notes,
        next="trainyard cluster.list",
    )


@task(*CLUSTER, dry=True)
def status(call: Call) -> Report:
    """Show the state of each node, the resources in use, and active runs."""
    now = lazy.clusters.status(call.cluster())

    def has_ended(run: str) -> bool:
        # Ray lists a run's job as running for a moment after the run's end. `run_guard` is imported
        # only for active runs.
        return bool(lazy.run_guard.is_recorded_as_ended(call.here.results, run))

    usage = lazy.usage.ask(now, has_ended=has_ended)
    return status_report(now, usage, now.hosts())


@task(
    *CLUSTER,
    dry=True,
    help={"fix": "Also run the steps of cluster.up that mend findings; then check again."},
)
def doctor(call: Call, fix: bool = False) -> Report:
    """Find what is broken or will break (nodes, hosts, certificates, disks); exit 5 if anything."""
    cluster = call.cluster()
    found = lazy.clusters.diagnose(cluster)
    if fix and not call.dry and any(finding.step for finding in found):
        lazy.clusters.mend(cluster, found, call.progress)
        found = lazy.clusters.diagnose(cluster)
    return findings_report(cluster.spec.name, found)


@task(
    *CLUSTER,
    dry=True,
    positional=["sizes"],
    iterable=["sizes"],
    help={"sizes": SIZES, "adopt": ADOPT, "end_runs": END_RUNS},
)
def scale(
    call: Call, sizes: list[str] | None = None, adopt: bool = False, end_runs: bool = False
) -> Report:
    """Give groups another number of nodes than the file says: cluster.scale gpu=3."""
    file = lazy.clusters.asking(call.cluster(), adopt=adopt)
    cluster = lazy.scale.scaled(file, sizes or [])
    command_hints.override(cluster.site.overrides)
    if call.dry:
        command = _flagged("cluster.up", {"--adopt": adopt})
        return planned(cluster, lazy.clusters.plan_up(cluster, call.progress), command)

    command = _flagged(f"cluster.scale {shlex.join(sizes or [])}", {"--adopt": adopt})
    result = _made(call, cluster, command, end_runs=end_runs)
    # The next cluster.up restores the file's sizes.
    back = f"write it into {file.loaded.source} to keep it, or the next cluster.up undoes it"
    notes = [*result.notes]
    for difference in lazy.scale.size_differences(file.spec, cluster.spec):
        notes.append(f"note: {difference}; {back}")
    return replace(result, notes=notes)


@task(*CLUSTER, dry=True)
def show(call: Call) -> Report:
    """Print the cluster file as resolved, defaults marked."""
    from trainyard.spec.show import as_json, as_yaml

    spec = call.cluster().spec
    return Report(as_json(spec), [as_yaml(spec).rstrip()], next="trainyard cluster.plan")


@task(dry=True, name="list", help={"region": REGION, "context": _CONTEXT})
def list_(call: Call, region: str = "", context: str = "") -> Report:
    """List the clusters of the files here, and clusters that were made from files elsewhere."""
    here = call.here
    clusters, remarks = lazy.cluster_list.list_clusters(
        here.environ,
        directory=here.directory,
        region=region or None,
        context=context or None,
    )

    documents = []
    rows = []
    problems: list[str] = []
    for cluster in clusters:
        documents.append({**asdict(cluster), **shown_state(cluster.state)})
        state = _STATES.get(cluster.state, cluster.state)
        file = cluster.file and paths.shown(Path(cluster.file))
        rows.append((cluster.name, cluster.backend, state, cluster.address or cluster.place, file))
        if cluster.problem:
            problems += cluster.lines

    table = Table(("cluster", "backend", "state", "address", "file"), rows)
    return Report(
        {"clusters": documents, "remarks": remarks},
        [table, *problems, *remarks],
        next=_next_of_list(clusters),
    )


def _next_of_list(clusters: Sequence[ListedCluster]) -> str:
    """Propose the status of the first cluster that is up, else of the first.

    Clusters without a file, or of unknown state, are left out.
    """
    reachable = [cluster for cluster in clusters if cluster.file and cluster.state != "unknown"]
    if not reachable:
        return ""
    first = min(reachable, key=lambda cluster: cluster.state != "up")
    return f"trainyard cluster.status -f {shlex.quote(Path(first.file).stem)}"


@task(*CLUSTER, dry=True, name="open")
def open_(call: Call) -> Report | None:
    """Show the dashboard's address and login; open the dashboard in a browser if there is one."""
    cluster = call.cluster()
    endpoint = lazy.clusters.connect(cluster)
    now = lazy.clusters.status(cluster)
    token_file = str(now.token_file) if now.token_file else None
    lines = [f"dashboard: {endpoint.address}"]
    if token_file:
        lines.append(f"It asks for a token: paste the content of {token_file}")
    elif now.token_command:
        lines.append(f"It asks for a token: paste what this prints: {now.token_command}")
    lines += _for_rays_tools(endpoint.address, token_file, now)

    document = {
        "name": now.name,
        "address": endpoint.address,
        "gcs": now.gcs,
        "token_file": token_file,
        "token_command": now.token_command,
    }
    dashboard = Report(document, lines)
    if not call.dry:
        report.browse(endpoint.address)

    if endpoint.tunnel is None or call.dry:
        return replace(dashboard, next="trainyard cluster.status")

    # The dashboard's address is the end of a tunnel, which closes with this process.
    _show_until_interrupted(call, dashboard, f"It leads through a tunnel to {endpoint.tunnel}")
    report.propose("trainyard cluster.status")
    return None


@task(*CLUSTER, dry=True, positional=["node", "port"], help={"node": NODE, "port": PORT})
def forward(call: Call, node: str, port: str) -> Report | None:
    """Open a port of a node on this machine, until Ctrl-C."""
    from trainyard.seams import node_ports, programs

    here, there = _ports(port)
    command = node_ports.relay(there)
    words = lazy.nodes.shell(call.cluster(), node=node, command=command, terminal=False)

    if call.dry:
        line = f"would: Open port {there} of {node} on port {here} of this machine"
        return Report({"node": node, "port": there}, [line])

    programs.find(words[0], os.environ, hint=f"Install it: only this program reaches {node}.")

    def failed(reason: str) -> None:
        note(f"note: a connection to {node} failed: {reason}")

    with node_ports.forwarded(words, os.environ, port=here, failed=failed) as bound:
        address = f"127.0.0.1:{bound}"
        document = {"node": node, "port": there, "address": address}
        opened = Report(document, [f"http://{address}"])
        _show_until_interrupted(call, opened, f"It leads to port {there} of {node}")

    return None


def _ports(text: str) -> tuple[int, int]:
    """Read PORT or HERE:PORT as (HERE, PORT). Raises RequestError."""
    here, _, there = text.rpartition(":")
    here = here or there
    are_ports = all(port.isdecimal() and int(port) < 65536 for port in (here, there))
    if not are_ports or int(there) == 0:
        hint = "Write 6006, or 16006:6006 for port 16006 of this machine."
        raise RequestError(f"{text!r} is no port", hint=hint)
    return int(here), int(there)


def _show_until_interrupted(call: Call, opened: Report, leads: str) -> None:
    report.show(opened, json=call.json)
    sys.stdout.flush()
    note(f"{leads}, and is open until Ctrl-C.")
    with suppress(KeyboardInterrupt):
        threading.Event().wait()


def _for_rays_tools(address: str, token_file: str | None, now: ClusterStatus) -> list[str]:
    """Explain how to use Ray's own commands with the cluster."""
    lines = [f"Ray's own commands: ray job list --address={address}"]
    if now.gcs:
        # Without this variable, Ray replaces 127.0.0.1 by another address of this machine.
        lines.append(f"    {NODES_ON_LOOPBACK}=0 ray status --address={now.gcs}")

    export = "They need: export RAY_AUTH_MODE=token"
    if token_file:
        lines.append(f"{export} RAY_AUTH_TOKEN_PATH={token_file}")
    elif now.token_command:
        lines.append(f'{export} RAY_AUTH_TOKEN="$({now.token_command})"')
    return lines


@task(*CLUSTER, dry=True, positional=["node"], help={"node": NODE, "follow": FOLLOW, "all": ALL})
def logs(call: Call, node: str = "", follow: bool = True, all: bool = False) -> None:
    """Print the log files of all nodes, or of one, each line with its node."""
    lines = lazy.nodes.logs(call.cluster(), follow=follow, node=node, everything=all)
    for line in lines:
        # One JSON document per line, because the logs may not end.
        if call.json:
            text = json.dumps(asdict(line))
        else:
            text = f"{line.node} {line.file} | {line.text}"
        report.say(text, flush=True)


@task(
    *CLUSTER,
    dry=True,
    positional=["node"],
    help={"node": NODE, "command": "Run this command in the node's shell instead."},
)
def shell(call: Call, node: str = "head", command: str = "") -> Report:
    """Open a shell on a node (default: the head) or host; exit with the shell's exit code."""
    from trainyard.seams import programs

    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    words = lazy.nodes.shell(call.cluster(), node=node, command=command, terminal=terminal)
    if not (call.dry or call.json):
        programs.become(words, os.environ)
    return Report({"command": words}, [shlex.join(words)])


def _meant(
    call: Call, *, recreate: bool, remove: bool, force: bool, adopt: bool
) -> tuple[Cluster, str]:
    """Apply the flags; return the cluster and the command `cluster.up FLAGS`.

    Raises RequestError.
    """
    cluster = lazy.clusters.asking(call.cluster(), adopt=adopt)
    if remove or force:
        cluster = lazy.clusters.removing(cluster, remove=remove, force=force)
    flags = {"--recreate": recreate, "--remove": remove, "--force": force, "--adopt": adopt}
    return cluster, _flagged("cluster.up", flags)


def _flagged(command: str, flags: Mapping[str, bool]) -> str:
    given = [flag for flag, is_given in flags.items() if is_given]
    return " ".join([command, *given])


def planned(
    cluster: Cluster,
    plan: Sequence[PlannedStep],
    command: str,
    *,
    documents: Sequence[Mapping[str, Any]] = (),
) -> Report:
    """Report what `command` would do, and the runs that it would end.

    `documents` are the documents that Kubernetes would get, for --json.
    """
    runs = lazy.run_guard.would_end(cluster, plan)
    needed = [step.needs for step in plan if step.state == "would" and step.needs]
    next = " ".join(["trainyard", command, *needed])
    if runs:
        next += " --end-runs"
    if all(step.state == "already" for step in plan):
        next = "trainyard cluster.status"

    document = {
        "name": cluster.spec.name,
        "ends": [{"run": run.where, "about": run.message} for run in runs],
        "documents": list(documents),
    }
    result = report.planned(document, plan, next=next)
    ends = [f"  ends {run}" for run in runs]
    return replace(result, body=[*result.body, *ends])


def _made(
    call: Call, cluster: Cluster, command: str, *, end_runs: bool, recreate: bool = False
) -> Report:
    """Make the cluster, and remove leftovers of killed runs."""
    guard = _begin(call, cluster, command, end_runs=end_runs)
    made = lazy.clusters.up(cluster, call.progress, guard=guard, recreate=recreate)
    address = made.endpoint.address
    lazy.leftovers.remove(cluster, call.progress)

    warnings = []
    leashes = []
    for step in made.steps:
        warnings += [f"warning: {text}" for text in step.warnings]
        if step.kind == "leash":
            leashes.append(f"note: the cluster {step.detail}")

    document = {
        "name": cluster.spec.name,
        "state": "up",
        "address": address,
        "steps": step_documents(made.steps),
    }
    line = f"cluster {cluster.spec.name} is up: {shown_address(address, made.endpoint.tunnel)}"
    return Report(document, [line], notes=[*warnings, *leashes], next="trainyard smoke.run")


def _removed(
    cluster: Cluster, results: Sequence[StepResult], *, purge: bool, keep_disks: bool
) -> Report:
    name = cluster.spec.name
    traits = cluster.backend.traits
    notes = [f"note: {step.detail}" for step in results if step.kind == "stays"]
    left = []
    if keep_disks:
        left.append("its disks")
    if notes:
        left.append("what follows")

    if not traits.makes_nodes:
        line = "nothing was removed"
    elif left:
        line = f"cluster {name} is gone, nothing but {' and '.join(left)} is left"
    else:
        line = f"cluster {name} is gone, nothing of it is left"

    if traits.leaves and not purge:
        purging = "to remove those that Trainyard made: trainyard cluster.down --purge"
        notes.append(f"note: {traits.leaves}; {purging}")

    document = {"name": name, "state": "down", "steps": step_documents(results)}
    return Report(document, [line], notes=notes, next="trainyard cluster.up")


def _remove_leftovers(call: Call, cluster: Cluster) -> None:
    """Remove leftovers of killed runs; an error becomes a note."""
    try:
        lazy.leftovers.remove(cluster, call.progress)
    except TrainyardError as error:
        note(f"note: whether killed runs left something is unknown: {error.what}")


def _begin(call: Call, cluster: Cluster, command: str, *, end_runs: bool) -> RunGuard:
    source = paths.shown(cluster.loaded.source)
    note(f"cluster {cluster.spec.name} ({cluster.spec.backend}), as {source} says")
    return lazy.clusters.RunGuard(
        command,
        results=call.here.results,
        note=lambda text: note(f"note: {text}"),
        end_runs=end_runs,
    )
