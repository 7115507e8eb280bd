"""What the cluster tasks print: a document for machines, or a table and the next command for people."""

from __future__ import annotations

import json as json_module
import shlex
import sys
import threading
import webbrowser
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trainyard.backends import replace_head
from trainyard.backends.contract import ClusterStatus, LogLine
from trainyard.endpoint import Endpoint
from trainyard.errors import NotReadyError
from trainyard.lifecycle import Cluster
from trainyard.listing import Listing
from trainyard.results.formats import duration, size
from trainyard.spec import as_json, as_yaml
from trainyard.steps import PlannedStep, StepResult
from trainyard.tasks.command_hints import complete
from trainyard.tasks.output import as_document, print_json, print_next, print_table, say
from trainyard.usage import RunNow, Usage, total

# Of which clusters in a list the next command is likeliest to be about.
_NEXT = {"up": 0, "partial": 1, "broken": 2, "absent": 3}


def begun(cluster: Cluster) -> None:
    """Say which cluster is meant, and by which file: `-f` may have been left out."""
    say(f"cluster {cluster.spec.name} ({cluster.spec.backend}), as {cluster.loaded.source} says", file=sys.stderr)


def made(cluster: Cluster, results: Sequence[StepResult], endpoint: Endpoint, *, json: bool) -> None:
    """Print what was done, and where the cluster answers."""
    if json:
        print_json({"name": cluster.spec.name, "state": "up", "address": endpoint.address, "steps": _steps(results)})
        return
    say(f"cluster {cluster.spec.name} is up: {_way_in(endpoint.address, endpoint.tunnel, cluster)}")
    _warn(results)
    print_next("invoke smoke.run")


def resized(cluster: Cluster, differences: Sequence[str]) -> None:
    """Say that the file still has other sizes: the next cluster.up without them goes back."""
    for difference in differences:
        source = cluster.loaded.source
        say(f"note: {difference}; write it into {source} to keep it, or cluster.up goes back", file=sys.stderr)


def removed(cluster: Cluster, results: Sequence[StepResult], *, json: bool, purge: bool = False) -> None:
    """Print what was removed, and what stays for other clusters."""
    if json:
        print_json({"name": cluster.spec.name, "state": "down", "steps": _steps(results)})
        return
    traits = cluster.backend.TRAITS
    say(f"cluster {cluster.spec.name} is gone, nothing is left" if traits.makes_nodes else "nothing was removed")
    if traits.leaves and not purge:
        removal = complete("invoke cluster.down --purge")
        say(f"note: {traits.leaves}; those that Trainyard made go by {removal}", file=sys.stderr)
    print_next("invoke cluster.up")


def planned(
    cluster: Cluster,
    plan: Sequence[PlannedStep],
    *,
    json: bool,
    up: str = "",
    documents: Sequence[Mapping[str, Any]] = (),
    command: str = "cluster.up",
) -> None:
    """Print what would be done; `up` is what the next cluster.up needs besides, where the plan does not say it.

    `documents` are what Kubernetes would get.
    """
    from trainyard import ending

    ends = ending.would_end(cluster, plan)
    if json:
        steps = [as_document(step) for step in plan]
        runs = [{"run": run.where, "about": run.message} for run in ends]
        print_json({"name": cluster.spec.name, "steps": steps, "ends": runs, "documents": list(documents)})
        return
    for step in plan:
        say(f"  {step.state:<7}  {step.title}" + (f"  ({step.detail})" if step.detail else ""))
        if step.disruptive and step.state != "already":
            for run in ends:
                say(f"           ends {run}")
    done = all(step.state == "already" for step in plan)
    up = (up or " --recreate" * replace_head.is_needed(plan)) + " --end-runs" * bool(ends)
    print_next("invoke cluster.status" if done else f"invoke {command}{up}")


def note(text: str) -> None:
    """Print a line that is worth reading and no error."""
    say(f"note: {text}", file=sys.stderr)


def status(cluster: Cluster, now: ClusterStatus, usage: Usage | None, *, json: bool) -> None:
    """Print the nodes, and what is in use by which runs."""
    if json:
        print_json(_status_document(now, usage))
        return
    simulated = " (simulated)" if now.simulated_gpus else ""
    way_in = f": {_way_in(now.address, now.tunnel, cluster)}" if now.address else ""
    say(f"cluster {now.name} ({now.backend}) is {now.state}{way_in}")
    rows = [
        (
            node.name,
            node.group,
            node.host,
            node.state,
            _shown(node.cpus),
            f"{node.gpus}{simulated if node.gpus else ''}",
            *([_free(usage, node.name)] if usage and usage.nodes else []),
        )
        for node in now.nodes
    ]
    print_table(("node", "group", "host", "state", "cpus", "gpus", *(["free"] if usage and usage.nodes else [])), rows)
    if usage and usage.runs:
        columns = ("run", "job", "user", "running", "waiting", "age")
        print_table(columns, [_run_row(run) for run in usage.runs], may_shorten=("job", "user"))
    if now.detail:
        say(complete(now.detail))
    if now.differences:
        say(complete(f"note: differs from its file; `invoke cluster.up` changes {'; '.join(now.differences)}"))
    if now.remark:
        say(complete(f"note: {now.remark}"), file=sys.stderr)
    print_next(f"invoke {'smoke.run' if now.state == 'up' else 'cluster.up'}")


def shown(cluster: Cluster, *, json: bool) -> None:
    """Print the file as resolved."""
    if json:
        print_json(as_json(cluster.spec))
        return
    say(as_yaml(cluster.spec).rstrip())
    print_next("invoke cluster.plan")


def listed(found: Listing, *, json: bool) -> None:
    """Print the clusters."""
    if json:
        print_json(
            {
                "clusters": [{**asdict(cluster), **_state(cluster.state)} for cluster in found.clusters],
                "remarks": list(found.remarks),
            }
        )
        return
    rows = [(one.name, one.backend, one.state, one.address or one.place or "", one.file) for one in found.clusters]
    print_table(("cluster", "backend", "state", "address", "file"), rows)
    for one in found.clusters:
        if one.problem:
            say(complete(f"{one.name}: {one.problem}"))
    for remark in found.remarks:
        say(remark)
    with_file = sorted((one for one in found.clusters if one.file), key=lambda one: _NEXT.get(one.state, len(_NEXT)))
    for one in with_file[:1]:
        print_next(f"invoke cluster.status -f {shlex.quote(Path(one.file).stem)}")


def opened(cluster: Cluster, now: ClusterStatus, *, json: bool, browse: bool) -> None:
    """Print the dashboard's address and where its token is, never the token itself."""
    token_file = str(now.token_file) if now.token_file else None
    if now.address is None:
        hint = "What is wrong with it: invoke cluster.status"
        raise NotReadyError(
            f"nothing leads to the dashboard of cluster {now.name}", where=now.detail or None, hint=hint
        )
    if json:
        found = {"address": now.address, "token_file": token_file, "token_command": now.token_command}
        print_json({"name": now.name, **found})
        return
    say(f"dashboard: {now.address}")
    if token_file:
        say(f"It asks for a token: paste the content of {token_file}")
    if now.token_command:
        say(f"It asks for a token: paste what this prints: {now.token_command}")
    if browse and sys.stdout.isatty():
        webbrowser.open(now.address)
    if now.tunnel is None or not browse:
        print_next("invoke cluster.status")


def held(cluster: Cluster, now: ClusterStatus) -> None:
    """Stay until Ctrl-C: the tunnel that the dashboard's address needs ends with this process."""
    say(f"It leads through a tunnel to {now.tunnel}, which is open until Ctrl-C.", file=sys.stderr)
    sys.stdout.flush()
    with suppress(KeyboardInterrupt):
        threading.Event().wait()
    print_next("invoke cluster.status")


def logged(lines: Iterable[LogLine], *, json: bool) -> None:
    """Print log lines as they come; with `json`, one document a line, since there may be no end."""
    for line in lines:
        text = json_module.dumps(asdict(line)) if json else f"{line.node} {line.file} | {line.text}"
        say(text, flush=True)


def _warn(results: Sequence[StepResult]) -> None:
    for result in results:
        if result.detail and result.title.startswith("Check "):
            say(complete(f"warning: {result.detail}"), file=sys.stderr)


def _steps(results: Sequence[StepResult]) -> list[dict[str, Any]]:
    return [{**as_document(result), "seconds": round(result.seconds, 3)} for result in results]


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
    free = usage.nodes[node][1]
    gpus = f"{free.gpus:g} GPU{'s' * (free.gpus != 1)}, " if sum(one.gpus for one in usage.nodes[node]) else ""
    return f"{free.cpus:g} CPU{'s' * (free.cpus != 1)}, {gpus}{size(free.memory)}"


def _run_row(run: RunNow) -> tuple[str, ...]:
    counts = ("?" if count is None else str(count) for count in (run.running, run.waiting))
    return (run.run, run.job or "", run.user or "", *counts, duration(run.seconds))


def _way_in(address: str, tunnel: str | None, cluster: Cluster) -> str:
    """Return the address, or who opens it: one that ends with this command is of no use to anybody."""
    if tunnel is None:
        return address
    return f"on {tunnel}; `{complete('invoke cluster.open')}` leads there"


def _shown(value: int | None) -> str:
    return "?" if value is None else str(value)
