"""The reports of `cluster.status` and `cluster.doctor`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from trainyard.api import lazy
from trainyard.console.command_hints import complete
from trainyard.console.report import Report, Table, as_document
from trainyard.errors import DoctorError
from trainyard.results.formats import duration, size, utc
from trainyard.wording import counted, without_name

if TYPE_CHECKING:
    from trainyard.backends.contract import ClusterStatus, Finding, HostStatus, LeashStatus
    from trainyard.operations.usage import RunNow, Usage


def status_report(now: ClusterStatus, usage: Usage, hosts: Sequence[HostStatus] = ()) -> Report:
    """Report a cluster: its nodes, usage, active runs, and hosts, if any."""
    answers = f": {shown_address(now.address, now.tunnel)}" if now.address else ""
    body: list[str | Table] = [f"cluster {now.name} ({now.backend}) is {now.state}{answers}"]
    if now.nodes:
        body.append(_nodes(now, usage))
    if usage.runs:
        body.append(_runs(usage.runs))
    if hosts:
        body.append(hosts_table(hosts))
    for host in hosts:
        if host.detail:
            body.append(f"{_shown(host)}: {without_name(host.name, host.detail)}")

    if now.owner:
        body.append(f"owner: {now.owner}")
    if now.leash:
        body.append(_leash(now.leash, lazy.usage.ends_at(now, usage)))
    if now.detail:
        body.append(now.detail)
    if now.differences:
        differences = "; ".join(now.differences)
        body.append(f"note: differs from its file; `trainyard cluster.up` changes {differences}")

    document = {**_status_document(now, usage), "hosts": [as_document(host) for host in hosts]}
    notes = [f"note: {now.remark}"] if now.remark else ()
    return Report(document, body, notes=notes, next=_next(now, hosts))


def _runs(runs: Sequence[RunNow]) -> Table:
    columns = ("run", "job", "user", "running", "waiting", "age")
    rows = []
    for run in runs:
        counts = (_known(run.running), _known(run.waiting))
        rows.append((run.run, run.job, run.user, *counts, duration(run.seconds)))
    return Table(columns, rows, may_shorten=("job", "user"))


def _next(now: ClusterStatus, hosts: Sequence[HostStatus]) -> str:
    if now.state != "up":
        return "trainyard cluster.up"
    if all(host.state == "ready" for host in hosts):
        return "trainyard smoke.run"
    return "trainyard cluster.doctor"


def findings_report(name: str, found: Sequence[Finding]) -> Report:
    """Report findings and remedies; any finding makes the report an error."""
    if not found:
        document = {"name": name, "ok": True, "findings": []}
        return Report(document, [f"nothing is wrong with cluster {name}"])

    findings = []
    rows = []
    for finding in found:
        remedy = complete(finding.remedy)
        rows.append((finding.subject, finding.message, remedy))
        findings.append(
            {
                "subject": finding.subject,
                "message": finding.message,
                "remedy": remedy,
                "fixable": finding.step is not None,
            }
        )

    hint = None
    if any(finding.step for finding in found):
        hint = "To run the steps of cluster.up that mend findings: trainyard cluster.doctor --fix"

    return Report(
        {"name": name, "ok": False, "findings": findings},
        [Table(("what", "what is wrong", "what helps"), rows)],
        error=DoctorError(f"{counted(len(found), 'finding')} about cluster {name}", hint=hint),
    )


def _nodes(now: ClusterStatus, usage: Usage) -> Table:
    simulated = " (simulated)" if now.simulated_gpus else ""
    columns = ["node", "group", "host", "state", "cpus", "gpus"]
    rows = []
    for node in now.nodes:
        gpus = f"{node.gpus}{simulated}" if node.gpus else "0"
        rows.append([node.name, node.group, node.host, node.state, _known(node.cpus), gpus])
    if usage.nodes:
        columns.append("free")
        for row, node in zip(rows, now.nodes, strict=True):
            row.append(_free(usage, node.name))
    return Table(columns, rows)


def hosts_table(hosts: Sequence[HostStatus]) -> Table:
    """Return the table of hosts; "?" marks an unknown value."""
    columns = ["host", "role", "state", "version", "voter", "certs end"]
    voters = {True: "yes", False: "no", None: "?"}
    has_nodes = any(host.nodes for host in hosts)
    has_gpus = any(host.gpus for host in hosts)
    if has_nodes:
        columns.append("nodes")
    if has_gpus:
        columns.append("gpus")

    rows: list[list[object]] = []
    for host in hosts:
        voter = voters[host.voter] if host.role == "control plane" else ""
        days = "?" if host.certificate_days is None else counted(host.certificate_days, "day")
        row = [_shown(host), host.role, host.state, _known(host.version), voter, days]
        if has_nodes:
            row.append(", ".join(host.nodes))
        if has_gpus:
            row.append(_known(host.gpus))
        rows.append(row)

    return Table(columns, rows, may_shorten=("role", "version", "nodes"))


def _shown(host: HostStatus) -> str:
    """Return a host's name, preferably that in Kubernetes, and its address."""
    name = host.host or host.name
    if host.address in ("", name):
        return name
    return f"{name} ({host.address})"


def _leash(leash: LeashStatus, moment: float | None) -> str:
    from trainyard.backends.shared.leash import words

    if leash.problem:
        return f"leash: does not hold: {leash.problem}"
    line = f"leash: {words(leash)}"
    if moment is not None and moment != leash.deadline:
        line += f"; as things are, at {utc(moment, readable=True)}"
    return line


def _status_document(now: ClusterStatus, usage: Usage) -> dict[str, Any]:
    """Return the document for `--json`, whose fields must keep their names."""
    nodes = []
    for node in now.nodes:
        amounts = _amounts(usage, [node.name])
        nodes.append({**as_document(node), **shown_state(node.state), **amounts})

    return {
        "name": now.name,
        "backend": now.backend,
        **shown_state(now.state),
        "nodes": nodes,
        "address": now.address,
        "simulated_gpus": now.simulated_gpus,
        "seen": now.detail,
        "tunnel": now.tunnel,
        "remark": now.remark,
        "owner": now.owner,
        "differences": list(now.differences),
        "leash": now.leash and {**asdict(now.leash), "ends_at": lazy.usage.ends_at(now, usage)},
        **_amounts(usage, [node.name for node in now.nodes]),
        "runs": usage.runs and [asdict(run) for run in usage.runs],
    }


def shown_state(condition: str) -> dict[str, str]:
    """Return the --json fields of a state.

    `state` has always been "down" for both "absent" and "broken"; `condition`
    has the exact word.
    """
    state = "down" if condition in ("absent", "broken") else condition
    return {"state": state, "condition": condition}


def _amounts(usage: Usage, nodes: Sequence[str]) -> dict[str, Any]:
    """Sum these nodes' used and free resources; None if no node reports any."""
    known = [usage.nodes[name] for name in nodes if name in usage.nodes]
    if not known:
        return {"used": None, "free": None}
    used = lazy.usage.total(used for used, _ in known)
    free = lazy.usage.total(free for _, free in known)
    return {"used": asdict(used), "free": asdict(free)}


def _free(usage: Usage, node: str) -> str:
    if node not in usage.nodes:
        return "?"
    used, free = usage.nodes[node]
    parts = [f"{free.cpus:g} CPU{'s' * (free.cpus != 1)}"]
    if used.gpus + free.gpus:
        parts.append(f"{free.gpus:g} GPU{'s' * (free.gpus != 1)}")
    parts.append(size(free.memory))
    return ", ".join(parts)


def shown_address(address: str, tunnel: str | None) -> str:
    """Return an address, or how to reopen a tunnel that this process closes."""
    if tunnel is None:
        return address
    return f"on {tunnel}; `trainyard cluster.open` leads there"


def _known(count: int | str | None) -> object:
    return "?" if count is None else count
