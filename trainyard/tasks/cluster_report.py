"""What the cluster tasks print."""

from __future__ import annotations

import json as json_module
import shlex
import sys
import threading
import webbrowser
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from trainyard import paths
from trainyard.backends import replace_head
from trainyard.backends.contract import ClusterStatus, LogLine
from trainyard.endpoint import Endpoint
from trainyard.errors import NotReadyError
from trainyard.lifecycle import Cluster
from trainyard.listing import Listing
from trainyard.results.formats import duration, size
from trainyard.spec import as_json, as_yaml
from trainyard.steps import PlannedStep, StepResult
from trainyard.tasks.report import Report, Table, as_document, note, plan_lines, say, show, step_documents
from trainyard.usage import Usage, total


def begin(cluster: Cluster) -> None:
    """Say which cluster is meant, and by which file: `-f` may have been left out."""
    note(f"cluster {cluster.spec.name} ({cluster.spec.backend}), as {paths.shown(cluster.loaded.source)} says")


def made(cluster: Cluster, results: Sequence[StepResult], endpoint: Endpoint) -> Report:
    """Say what was done, and where the cluster answers."""
    return Report(
        {"name": cluster.spec.name, "state": "up", "address": endpoint.address, "steps": step_documents(results)},
        [f"cluster {cluster.spec.name} is up: {_address(endpoint.address, endpoint.tunnel)}"],
        notes=[f"warning: {step.detail}" for step in results if step.detail and step.title.startswith("Check ")],
        next="invoke smoke.run",
    )


def resized(made: Report, cluster: Cluster, differences: Sequence[str]) -> Report:
    """Add that the file still has other sizes: the next cluster.up without them goes back."""
    source = cluster.loaded.source
    sizes = [f"note: {size}; write it into {source} to keep it, or cluster.up goes back" for size in differences]
    return replace(made, notes=[*made.notes, *sizes])


def removed(cluster: Cluster, results: Sequence[StepResult], *, purge: bool) -> Report:
    """Say what was removed, and what stays for other clusters."""
    spec = cluster.spec
    traits = cluster.backend.TRAITS
    stays = f"note: {traits.leaves}; those that Trainyard made go by invoke cluster.down --purge"
    return Report(
        {"name": spec.name, "state": "down", "steps": step_documents(results)},
        [f"cluster {spec.name} is gone, nothing is left" if traits.makes_nodes else "nothing was removed"],
        notes=[stays] if traits.leaves and not purge else (),
        next="invoke cluster.up",
    )


def planned(
    cluster: Cluster,
    plan: Sequence[PlannedStep],
    *,
    command: str = "cluster.up",
    documents: Sequence[Mapping[str, Any]] = (),
) -> Report:
    """Say what `command` would do, and which runs it would end; `documents` are what Kubernetes would get."""
    from trainyard import ending  # cluster.up itself needs none of it, and it takes a third of a second

    ends = ending.would_end(cluster, plan)
    if replace_head.is_needed(plan):
        command += " --recreate"
    if ends:
        command += " --end-runs"
    return Report(
        {
            "name": cluster.spec.name,
            "steps": [as_document(step) for step in plan],
            "ends": [{"run": run.where, "about": run.message} for run in ends],
            "documents": list(documents),
        },
        [*plan_lines(plan), *(f"  ends {run}" for run in ends)],
        next=f"invoke {command}" if any(step.state != "already" for step in plan) else "invoke cluster.status",
    )


def status(now: ClusterStatus, usage: Usage | None) -> Report:
    """Show the nodes, and what is in use by which runs."""
    answers = f": {_address(now.address, now.tunnel)}" if now.address else ""
    body: list[str | Table] = [f"cluster {now.name} ({now.backend}) is {now.state}{answers}", _nodes(now, usage)]
    if usage and usage.runs:
        rows = [
            (run.run, run.job or "", run.user or "", _text(run.running), _text(run.waiting), duration(run.seconds))
            for run in usage.runs
        ]
        columns = ("run", "job", "user", "running", "waiting", "age")
        body.append(Table(columns, rows, may_shorten=("job", "user")))
    if now.detail:
        body.append(now.detail)
    if now.differences:
        body.append(f"note: differs from its file; `invoke cluster.up` changes {'; '.join(now.differences)}")
    return Report(
        _status_document(now, usage),
        body,
        notes=[f"note: {now.remark}"] if now.remark else (),
        next="invoke smoke.run" if now.state == "up" else "invoke cluster.up",
    )


def shown(cluster: Cluster) -> Report:
    return Report(as_json(cluster.spec), [as_yaml(cluster.spec).rstrip()], next="invoke cluster.plan")


def listed(listing: Listing) -> Report:
    """Show the clusters."""
    clusters = listing.clusters
    rows = [(each.name, each.backend, each.state, each.address or each.place or "", each.file) for each in clusters]
    problems = [f"{cluster.name}: {cluster.problem}" for cluster in clusters if cluster.problem]
    file = next((each.file for each in clusters if each.file), "")
    return Report(
        {
            "clusters": [{**asdict(cluster), **_state(cluster.state)} for cluster in clusters],
            "remarks": list(listing.remarks),
        },
        [Table(("cluster", "backend", "state", "address", "file"), rows), *problems, *listing.remarks],
        next=f"invoke cluster.status -f {shlex.quote(Path(file).stem)}" if file else "",
    )


def opened(now: ClusterStatus, *, browse: bool) -> Report:
    """Say where the dashboard is and where its token is, never the token itself; open it where there is a browser."""
    if now.address is None:
        hint = "What is wrong with it: invoke cluster.status"
        what = f"nothing leads to the dashboard of cluster {now.name}"
        raise NotReadyError(what, where=now.detail or None, hint=hint)
    token_file = str(now.token_file) if now.token_file else None
    if browse and sys.stdout.isatty():
        webbrowser.open(now.address)
    pasted = f"the content of {token_file}" if token_file else f"what this prints: {now.token_command}"
    asks = f"It asks for a token: paste {pasted}"
    return Report(
        {"name": now.name, "address": now.address, "token_file": token_file, "token_command": now.token_command},
        [f"dashboard: {now.address}", *([asks] if token_file or now.token_command else [])],
        next="invoke cluster.status",
    )


def hold(opened: Report, tunnel: str, *, json: bool) -> None:
    """Show it, and stay until Ctrl-C: the tunnel that the dashboard's address needs ends with this process."""
    show(replace(opened, next=""), json=json)
    sys.stdout.flush()
    note(f"It leads through a tunnel to {tunnel}, which is open until Ctrl-C.")
    with suppress(KeyboardInterrupt):
        threading.Event().wait()
    note(f"next: {opened.next}")


def print_logs(lines: Iterable[LogLine], *, json: bool) -> None:
    """Print log lines as they come; with `json`, one document a line, since there may be no end."""
    for line in lines:
        text = json_module.dumps(asdict(line)) if json else f"{line.node} {line.file} | {line.text}"
        say(text, flush=True)


def _nodes(now: ClusterStatus, usage: Usage | None) -> Table:
    simulated = " (simulated)" if now.simulated_gpus else ""
    columns, rows = ["node", "group", "host", "state", "cpus", "gpus"], []
    for node in now.nodes:
        gpus = f"{node.gpus}{simulated}" if node.gpus else "0"
        rows.append([node.name, node.group, node.host, node.state, _text(node.cpus), gpus])
    if usage and usage.nodes:
        columns.append("free")
        for row in rows:
            row.append(_free(usage, row[0]))
    return Table(columns, rows)


def _status_document(now: ClusterStatus, usage: Usage | None) -> dict[str, Any]:
    """Return the shape of design.md, section 11; fields are added, never renamed."""
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
        "runs": usage and [asdict(run) for run in usage.runs],
    }


def _state(condition: str) -> dict[str, str]:
    """Return a state as --json has always named it, and whether what is down is absent or broken."""
    return {"state": "down" if condition in ("absent", "broken") else condition, "condition": condition}


def _amounts(usage: Usage | None, nodes: Sequence[str]) -> dict[str, Any]:
    """Return what of some nodes is used and free in all; null where no node says so."""
    known = [usage.nodes[name] for name in nodes if name in usage.nodes] if usage else []
    used, free = (total(amounts) for amounts in zip(*known, strict=True)) if known else (None, None)
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


def _text(value: int | None) -> str:
    return "?" if value is None else str(value)
