"""Make, look at and remove clusters."""

from __future__ import annotations

import json
import os
import shlex
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainyard import paths
from trainyard.errors import DoctorError
from trainyard.results.formats import duration, size
from trainyard.tasks import command_hints, lazy, report
from trainyard.tasks.command import CLUSTER, Call, task
from trainyard.tasks.command_hints import complete
from trainyard.tasks.report import Report, Table, as_document, note, step_documents
from trainyard.wording import counted

if TYPE_CHECKING:
    from trainyard.backends.contract import ClusterStatus, Finding, HostStatus
    from trainyard.lifecycle import Cluster
    from trainyard.steps import PlannedStep
    from trainyard.usage import Usage

NODE = "The name of a node, as cluster.status shows it, or of a host of the cluster file."
FOLLOW = "Stay, and print what is added (default)."
END_RUNS = "End the runs that go on, if nodes have to go; without it, they are named and nothing is done."
PURGE = "Also the KubeRay operator, its CRDs and the namespace, if Trainyard made them and nobody else needs them."
RECREATE = "Make every node anew, the head too; ends all that runs."
REMOVE = "Drain hosts that the file no longer names, and let them leave the cluster as they were found."
FORCE = "With --remove: also those that cannot be reached, and are gone for good."
SIZES = "GROUP=N: so many nodes; of a group that grows and shrinks, at least so many. Several may be given."


@task(*CLUSTER, dry=True, help={"recreate": RECREATE, "remove": REMOVE, "force": FORCE, "end_runs": END_RUNS})
def up(call: Call, recreate: bool = False, remove: bool = False, force: bool = False, end_runs: bool = False) -> Report:
    """Make the cluster match its file."""
    cluster, command = _meant(call, recreate=recreate, remove=remove, force=force)
    if call.dry:
        return planned(cluster, lazy.lifecycle.plan_up(cluster, recreate=recreate), command)
    return _made(call, cluster, command, recreate=recreate, end_runs=end_runs)


@task(
    *CLUSTER,
    dry=True,
    help={"recreate": "Plan as if cluster.up were called with --recreate.", "remove": REMOVE, "force": FORCE},
)
def plan(call: Call, recreate: bool = False, remove: bool = False, force: bool = False) -> Report:
    """Say what cluster.up would change; change nothing."""
    cluster, command = _meant(call, recreate=recreate, remove=remove, force=force)
    steps = lazy.lifecycle.plan_up(cluster, recreate=recreate)
    documents = lazy.lifecycle.documents(cluster, recreate=recreate) if call.json else ()
    return planned(cluster, steps, command, documents=documents)


@task(*CLUSTER, dry=True, help={"purge": PURGE, "end_runs": END_RUNS})
def down(call: Call, purge: bool = False, end_runs: bool = False) -> Report:
    """Remove the cluster, and prove that nothing is left."""
    cluster, command = call.cluster(), "cluster.down --purge" if purge else "cluster.down"
    if call.dry:
        return planned(cluster, lazy.lifecycle.plan_down(cluster, purge=purge), command)
    check = _begin(call, cluster, command, end_runs=end_runs)
    results = lazy.lifecycle.down(cluster, call.progress, purge=purge, before_disruption=check)
    name, traits = cluster.spec.name, cluster.backend.TRAITS
    stays = f"note: {traits.leaves}; those that Trainyard made go by invoke cluster.down --purge"
    return Report(
        {"name": name, "state": "down", "steps": step_documents(results)},
        [f"cluster {name} is gone, nothing is left" if traits.makes_nodes else "nothing was removed"],
        notes=[stays] if traits.leaves and not purge else (),
        next="invoke cluster.up",
    )


@task(*CLUSTER, dry=True)
def status(call: Call) -> Report:
    """Ask every node how it is, and what is in use."""
    now = lazy.lifecycle.status(call.cluster())
    return status_report(now, lazy.usage.ask(now), now.hosts())


@task(
    *CLUSTER, dry=True, help={"fix": "Also do what can be done about it, by the steps of cluster.up; then look again."}
)
def doctor(call: Call, fix: bool = False) -> Report:
    """Look for what is wrong or will break: nodes, hosts, certificates, disks; exits 5 if there is anything."""
    cluster = call.cluster()
    found = lazy.lifecycle.diagnose(cluster)
    if fix and not call.dry and any(finding.step for finding in found):
        lazy.lifecycle.mend(cluster, found, call.progress)
        found = lazy.lifecycle.diagnose(cluster)
    return findings_report(cluster.spec.name, found)


@task(*CLUSTER, dry=True, positional=["sizes"], iterable=["sizes"], help={"sizes": SIZES, "end_runs": END_RUNS})
def scale(call: Call, sizes: list[str] | None = None, end_runs: bool = False) -> Report:
    """Give groups another number of nodes than the file says, as cluster.up would: cluster.scale gpu=3."""
    file = call.cluster()
    cluster = lazy.lifecycle.scaled(file, sizes or [])
    command_hints.override(cluster.tools.overrides)
    if call.dry:
        return planned(cluster, lazy.lifecycle.plan_up(cluster), "cluster.up")
    made = _made(call, cluster, f"cluster.scale {shlex.join(sizes or [])}", end_runs=end_runs)
    # The next cluster.up without these sizes goes back.
    differences = lazy.lifecycle.size_differences(file.spec, cluster.spec)
    back = f"write it into {file.loaded.source} to keep it, or cluster.up goes back"
    return replace(made, notes=[*made.notes, *(f"note: {size}; {back}" for size in differences)])


@task(*CLUSTER, dry=True)
def show(call: Call) -> Report:
    """Print the cluster file as resolved, defaults marked."""
    from trainyard.spec.show import as_json, as_yaml

    spec = call.cluster().spec
    return Report(as_json(spec), [as_yaml(spec).rstrip()], next="invoke cluster.plan")


@task(dry=True, name="list")
def list_(call: Call) -> Report:
    """List the clusters that have a file here, and those that were made from files elsewhere."""
    clusters, remarks = lazy.listing.list_clusters(os.environ, directory=Path.cwd())
    rows = [
        (each.name, each.backend, each.state, each.address or each.place, each.file and paths.shown(Path(each.file)))
        for each in clusters
    ]
    problems = [f"{cluster.name}: {cluster.problem}" for cluster in clusters if cluster.problem]
    reachable = [each for each in clusters if each.file and each.state != "unknown"]
    file = min(reachable, key=lambda each: each.state != "up").file if reachable else ""
    return Report(
        {
            "clusters": [{**asdict(cluster), **_state(cluster.state)} for cluster in clusters],
            "remarks": remarks,
        },
        [Table(("cluster", "backend", "state", "address", "file"), rows), *problems, *remarks],
        next=f"invoke cluster.status -f {shlex.quote(Path(file).stem)}" if file else "",
    )


@task(*CLUSTER, dry=True, name="open")
def open_(call: Call) -> Report | None:
    """Show where the dashboard is and how to log in; open it when there is a browser."""
    cluster = call.cluster()
    endpoint = lazy.lifecycle.connect(cluster)
    now = lazy.lifecycle.status(cluster)
    token_file = str(now.token_file) if now.token_file else None
    found = {"token_file": token_file, "token_command": now.token_command}
    lines = [f"dashboard: {endpoint.address}"]
    if token_file or now.token_command:
        pasted = f"the content of {token_file}" if token_file else f"what this prints: {now.token_command}"
        lines.append(f"It asks for a token: paste {pasted}")
    dashboard = Report({"name": now.name, "address": endpoint.address, **found}, lines)
    if not call.dry:
        report.browse(endpoint.address)
    if endpoint.tunnel is None or call.dry:
        return replace(dashboard, next="invoke cluster.status")
    # The tunnel that the dashboard's address needs ends with this process.
    report.show(dashboard, json=call.json)
    sys.stdout.flush()
    note(f"It leads through a tunnel to {endpoint.tunnel}, which is open until Ctrl-C.")
    with suppress(KeyboardInterrupt):
        threading.Event().wait()
    note("next: invoke cluster.status")
    return None


@task(*CLUSTER, dry=True, positional=["node"], help={"node": NODE, "follow": FOLLOW})
def logs(call: Call, node: str = "", follow: bool = True) -> None:
    """Print what the nodes' own log files say, each line with its node: of all, or of one."""
    for line in lazy.lifecycle.logs(call.cluster(), follow=follow, node=node):
        # One document a line, since there may be no end.
        text = json.dumps(asdict(line)) if call.json else f"{line.node} {line.file} | {line.text}"
        report.say(text, flush=True)


@task(*CLUSTER, dry=True, positional=["node"], help={"node": NODE, "command": "Run this there instead, by its shell."})
def shell(call: Call, node: str = "head", command: str = "") -> Report:
    """Open a shell on a node (default: the head) or host; its exit code is the command's."""
    from trainyard.seams import programs

    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    words = lazy.lifecycle.shell(call.cluster(), node=node, command=command, terminal=terminal)
    if not (call.dry or call.json):
        programs.become(words, os.environ)
    return Report({"command": words}, [shlex.join(words)])


def _meant(call: Call, *, recreate: bool, remove: bool, force: bool) -> tuple[Cluster, str]:
    """Return the cluster, and the command that makes it as these flags say. Raises RequestError."""
    cluster = call.cluster()
    if remove or force:
        cluster = lazy.lifecycle.removing(cluster, force=force)
    flags = {"--recreate": recreate, "--remove": remove or force, "--force": force}
    return cluster, " ".join(["cluster.up", *(flag for flag, is_given in flags.items() if is_given)])


def planned(
    cluster: Cluster, plan: Sequence[PlannedStep], command: str, *, documents: Sequence[Mapping[str, Any]] = ()
) -> Report:
    """Say what `command` would do, and which runs it would end; `documents` are what Kubernetes would get."""
    from trainyard.backends import replace_head

    ends = lazy.ending.would_end(cluster, plan)
    if replace_head.is_needed(plan):
        command += " --recreate"
    if ends:
        command += " --end-runs"
    found = report.planned(
        {
            "name": cluster.spec.name,
            "ends": [{"run": run.where, "about": run.message} for run in ends],
            "documents": list(documents),
        },
        plan,
        next=f"invoke {command}" if any(step.state != "already" for step in plan) else "invoke cluster.status",
    )
    return replace(found, body=[*found.body, *(f"  ends {run}" for run in ends)])


def status_report(now: ClusterStatus, usage: Usage, hosts: Sequence[HostStatus] = ()) -> Report:
    """Show the nodes, what is in use by which runs, and the hosts where the backend knows them."""
    answers = f": {_address(now.address, now.tunnel)}" if now.address else ""
    body: list[str | Table] = [f"cluster {now.name} ({now.backend}) is {now.state}{answers}", _nodes(now, usage)]
    if usage.runs:
        rows = [
            (run.run, run.job, run.user, _known(run.running), _known(run.waiting), duration(run.seconds))
            for run in usage.runs
        ]
        columns = ("run", "job", "user", "running", "waiting", "age")
        body.append(Table(columns, rows, may_shorten=("job", "user")))
    if hosts:
        body += [hosts_table(hosts), *(f"{host.name}: {host.detail}" for host in hosts if host.detail)]
    if now.detail:
        body.append(now.detail)
    if now.differences:
        body.append(f"note: differs from its file; `invoke cluster.up` changes {'; '.join(now.differences)}")
    return Report(
        {**_status_document(now, usage), "hosts": [as_document(host) for host in hosts]},
        body,
        notes=[f"note: {now.remark}"] if now.remark else (),
        next="invoke smoke.run" if now.state == "up" else "invoke cluster.up",
    )


def findings_report(name: str, found: Sequence[Finding]) -> Report:
    """Show what is wrong with a cluster, and what helps; with an error if there is anything."""
    if not found:
        return Report({"name": name, "ok": True, "findings": []}, [f"nothing is wrong with cluster {name}"])
    document = [
        {
            "subject": finding.subject,
            "message": finding.message,
            "remedy": complete(finding.remedy),
            "fixable": finding.step is not None,
        }
        for finding in found
    ]
    rows = [(finding.subject, finding.message, complete(finding.remedy)) for finding in found]
    fixable = any(finding.step for finding in found)
    hint = "Do what can be done about it: invoke cluster.doctor --fix" if fixable else None
    return Report(
        {"name": name, "ok": False, "findings": document},
        [Table(("what", "what is wrong", "what helps"), rows)],
        error=DoctorError(f"{counted(len(found), 'finding')} about cluster {name}", hint=hint),
    )


def _made(call: Call, cluster: Cluster, command: str, *, end_runs: bool, recreate: bool = False) -> Report:
    """Make it; say what was done, and where the cluster answers."""
    check = _begin(call, cluster, command, end_runs=end_runs)
    results = lazy.lifecycle.up(cluster, call.progress, recreate=recreate, before_disruption=check)
    endpoint = lazy.lifecycle.connect(cluster)
    return Report(
        {"name": cluster.spec.name, "state": "up", "address": endpoint.address, "steps": step_documents(results)},
        [f"cluster {cluster.spec.name} is up: {_address(endpoint.address, endpoint.tunnel)}"],
        notes=[f"warning: {step.detail}" for step in results if step.detail and step.title.startswith("Check ")],
        next="invoke smoke.run",
    )


def _begin(call: Call, cluster: Cluster, command: str, *, end_runs: bool) -> Callable[[], None]:
    """Say which cluster is meant, and by which file; return the check for runs that nodes would end with."""
    note(f"cluster {cluster.spec.name} ({cluster.spec.backend}), as {paths.shown(cluster.loaded.source)} says")
    results = paths.results_home(os.environ, directory=Path.cwd())

    def check() -> None:
        # Most commands end no nodes, and need none of what this imports.
        lazy.ending.check(
            cluster, command, call.progress, results=results, end_runs=end_runs, note=lambda text: note(f"note: {text}")
        )

    return check


def _nodes(now: ClusterStatus, usage: Usage) -> Table:
    simulated = " (simulated)" if now.simulated_gpus else ""
    columns, rows = ["node", "group", "host", "state", "cpus", "gpus"], []
    for node in now.nodes:
        gpus = f"{node.gpus}{simulated}" if node.gpus else "0"
        rows.append([node.name, node.group, node.host, node.state, _known(node.cpus), gpus])
    if usage.nodes:
        columns.append("free")
        for row, node in zip(rows, now.nodes, strict=True):
            row.append(_free(usage, node.name))
    return Table(columns, rows)


def hosts_table(hosts: Sequence[HostStatus]) -> Table:
    """Show what is below the nodes; a question mark is what a host that does not answer would know."""
    columns = ("host", "address", "role", "state", "version", "voter", "certificates", "nodes", "gpus")
    voters = {True: "yes", False: "no", None: "?"}
    rows = [
        (
            *(host.name, host.address, host.role, host.state, _known(host.version)),
            voters[host.voter] if host.role == "control plane" else "",
            "?" if host.certificate_days is None else f"{host.certificate}: {counted(host.certificate_days, 'day')}",
            ", ".join(host.nodes),
            _known(host.gpus),
        )
        for host in hosts
    ]
    return Table(columns, rows)


def _status_document(now: ClusterStatus, usage: Usage) -> dict[str, Any]:
    """Return what `--json` prints; fields are added, never renamed."""
    return {
        "name": now.name,
        "backend": now.backend,
        **_state(now.state),
        "nodes": [{**as_document(node), **_state(node.state), **_amounts(usage, [node.name])} for node in now.nodes],
        "address": now.address,
        "simulated_gpus": now.simulated_gpus,
        "seen": now.detail,
        "tunnel": now.tunnel,
        "remark": now.remark,
        "differences": list(now.differences),
        **_amounts(usage, [node.name for node in now.nodes]),
        "runs": usage.runs and [asdict(run) for run in usage.runs],
    }


def _state(condition: str) -> dict[str, str]:
    """Return a state as --json has always named it, and whether what is down is absent or broken."""
    return {"state": "down" if condition in ("absent", "broken") else condition, "condition": condition}


def _amounts(usage: Usage, nodes: Sequence[str]) -> dict[str, Any]:
    """Return what of some nodes is used and free in all; null where no node says so."""
    known = [usage.nodes[name] for name in nodes if name in usage.nodes]
    used, free = (lazy.usage.total(amounts) for amounts in zip(*known, strict=True)) if known else (None, None)
    return {"used": used and asdict(used), "free": free and asdict(free)}


def _free(usage: Usage, node: str) -> str:
    if node not in usage.nodes:
        return "?"
    used, free = usage.nodes[node]
    gpus = f"{free.gpus:g} GPU{'s' * (free.gpus != 1)}, " if used.gpus + free.gpus else ""
    return f"{free.cpus:g} CPU{'s' * (free.cpus != 1)}, {gpus}{size(free.memory)}"


def _address(address: str, tunnel: str | None) -> str:
    """Return the address, or the command that opens it: one that ends with this command is of no use to anybody."""
    return address if tunnel is None else f"on {tunnel}; `invoke cluster.open` leads there"


def _known(count: int | str | None) -> object:
    return "?" if count is None else count
