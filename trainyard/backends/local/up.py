"""The steps that make a local cluster match its file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from trainyard.backends import node_steps, ray_nodes, replace_head
from trainyard.backends.contract import Tools
from trainyard.backends.local import diagnosis, preflight, record, snapshot
from trainyard.backends.local.desired import Ports
from trainyard.backends.local.naming import ClusterFiles
from trainyard.backends.local.record import ClusterRecord, NodeRecord
from trainyard.backends.local.status import NO_DASHBOARD, answer
from trainyard.backends.node_steps import Difference, Nodes
from trainyard.backends.ray_nodes import NodePlan
from trainyard.backends.record import make_token, read_token
from trainyard.errors import OutsideError, RequestError
from trainyard.seams import processes
from trainyard.spec.cluster import ClusterSpec
from trainyard.steps import YES, Answer, Stage, Step, no, nothing

FIXED = "Give the group a fixed `count`: this machine does not get larger."


@dataclass(frozen=True)
class _Up:
    """What `cluster.up` works with: the nodes as they should be, and the files about them."""

    spec: ClusterSpec
    tools: Tools
    files: ClusterFiles
    plans: tuple[NodePlan, ...]

    def difference(self) -> Difference:
        recorded = record.read_nodes(self.files)
        return snapshot.compare(self.plans, recorded, running=snapshot.running(recorded))

    def missing(self) -> list[NodePlan]:
        names = self.difference().missing
        return [plan for plan in self.plans if plan.name in names]


def up_steps(spec: ClusterSpec, tools: Tools) -> list[Stage]:
    """Return the steps that make the cluster match its file; which they are, this machine knows."""
    ray_nodes.refuse_growing_groups(spec, hint=FIXED)

    def expand() -> list[Step]:
        return _steps(_Up(spec, tools, ClusterFiles(tools.state), preflight.node_plans(spec, tools.environ)))

    return [Stage("Look at this machine", expand=expand)]


def _steps(up: _Up) -> list[Step]:
    surplus = _surplus(up)
    refused = _refusal(up, surplus)
    token = Step(
        "Make the cluster's token",
        done=lambda: YES if read_token(up.files.token) else no("there is none"),
        do=lambda: _make_token(up.files),
    )
    nodes = Nodes(
        up.plans,
        made=lambda: record.read_nodes(up.files),
        missing=lambda: up.difference().missing,
        start=lambda: _start(up),
        answer=lambda: _answer(up),
    )
    return [
        *([replace_head.step(refused)] if refused else []),
        Step("Check this machine", done=lambda: _check(up), do=nothing),
        *([token] if up.spec.auth == "token" else []),
        *node_steps.steps(
            nodes,
            surplus,
            remove=lambda: snapshot.end(up.files, surplus),
            runs=bool(snapshot.running(surplus)),
            recreate=up.tools.recreate,
        ),
    ]


def _surplus(up: _Up) -> Mapping[str, NodeRecord]:
    recorded = record.read_nodes(up.files)
    return recorded if up.tools.recreate else {name: recorded[name] for name in up.difference().surplus}


def _refusal(up: _Up, surplus: Mapping[str, NodeRecord]) -> RequestError | None:
    """Return why the running head may not go: all runs end with it, so that it must be asked for."""
    head = surplus.get("head")
    if head is None or up.tools.recreate or not any(snapshot.RAYLET in line for line in snapshot.commands(head)):
        return None
    plan = next(plan for plan in up.plans if plan.is_head)
    return replace_head.refusal(ray_nodes.changes(json.loads(head.plan), plan))


def _check(up: _Up) -> Answer:
    missing = up.missing()
    return Answer(True, "; ".join(preflight.check(missing, preflight.inspect())) if missing else "")


def _make_token(files: ClusterFiles) -> None:
    files.prepare()
    make_token(files.token)


def _start(up: _Up) -> None:
    """Start every missing node, side by side; a new head gets new ports."""
    up.files.prepare()
    missing = up.missing()
    cluster = record.read(up.files, up.tools.backend)
    if cluster is None or any(plan.is_head for plan in missing):
        simulated = any(plan.gpus and plan.gpu_ids is None for plan in up.plans)
        cluster = ClusterRecord(up.spec.name, Ports(*processes.free_ports(2)), simulated, up.spec.auth)
        record.write(up.files, up.tools.backend, cluster)
    for plan in missing:
        snapshot.start(up.files, plan, cluster.ports, environ=up.tools.environ)


def _answer(up: _Up) -> tuple[frozenset[str], str]:
    diagnosis.refuse_dead(up.files)
    answering, detail = answer(up.files, record.read(up.files, up.tools.backend))
    if detail == NO_DASHBOARD:
        raise OutsideError(
            "the head's dashboard has ended; what runs on the cluster goes on, but nobody can ask it",
            where=str(up.files.ray_logs("head") / "dashboard.log"),
            hint="Make the cluster anew, which ends everything on it: invoke cluster.up --recreate",
        )
    return answering, detail
