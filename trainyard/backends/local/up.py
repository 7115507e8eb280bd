"""The steps that make a local cluster match its file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from trainyard.backends import ray_nodes, replace_head, wording
from trainyard.backends.contract import Tools
from trainyard.backends.local import diagnosis, preflight, record, snapshot
from trainyard.backends.local.desired import Ports
from trainyard.backends.local.naming import ClusterFiles
from trainyard.backends.local.record import ClusterRecord, NodeRecord
from trainyard.backends.local.snapshot import Difference
from trainyard.backends.local.status import NO_DASHBOARD, answer
from trainyard.backends.ray_nodes import NodePlan
from trainyard.backends.record import make_token, read_token
from trainyard.errors import OutsideError, RequestError
from trainyard.seams import processes
from trainyard.spec.cluster import ClusterSpec
from trainyard.steps import YES, Answer, Stage, Step, no, nothing

# A head and two workers took 5 s on 2 idle cores; a busy machine may need many times that, and several tries.
READY_SECONDS = 300.0
FIXED = "Give the group a fixed `count`: this machine does not get larger."


@dataclass(frozen=True)
class _Up:
    """What `cluster.up` works with: the nodes as they should be, and the files about them."""

    spec: ClusterSpec
    tools: Tools
    files: ClusterFiles
    plans: tuple[NodePlan, ...]

    def cluster(self) -> ClusterRecord | None:
        return record.read(self.files, self.tools.backend)

    def difference(self) -> Difference:
        recorded = record.read_nodes(self.files)
        return snapshot.compare(self.plans, recorded, running=snapshot.running(recorded))


def up_steps(spec: ClusterSpec, tools: Tools) -> list[Stage]:
    """Return the steps that make the cluster match its file; which they are, this machine knows."""
    ray_nodes.refuse_growing_groups(spec, hint=FIXED)

    def expand() -> list[Step]:
        return _steps(_Up(spec, tools, ClusterFiles(tools.state), preflight.node_plans(spec, tools.environ)))

    return [Stage("Look at this machine", expand=expand)]


def _steps(up: _Up) -> list[Step]:
    surplus = _surplus(up)
    refused = _refusal(up, surplus)
    remove = f"Remove {wording.named(tuple(surplus))}"
    missing = () if up.tools.recreate else tuple(plan.name for plan in up.difference().missing)
    start = wording.start_of(missing, len(up.plans))
    token = Step("Make the cluster's token", done=lambda: _has_token(up), do=lambda: _make_token(up.files))
    removal = Step(
        remove,
        done=lambda: _are_gone(up, surplus),
        do=lambda: snapshot.end(up.files, surplus),
        disruptive=bool(snapshot.running(surplus)),
    )
    return [
        *([replace_head.step(refused)] if refused else []),
        Step("Check this machine", done=lambda: _check(up), do=nothing),
        *([token] if up.spec.auth == "token" else []),
        *([removal] if surplus else []),
        Step(start, done=lambda: _are_started(up), do=lambda: _start(up), after=remove if surplus else None),
        Step(
            wording.all_answer(len(up.plans)),
            done=lambda: _answer(up),
            do=nothing,
            deadline=READY_SECONDS,
            every=0.1,
            after=start,
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
    missing = up.difference().missing
    warnings = preflight.check(missing, preflight.inspect()) if missing else []
    return Answer(True, "; ".join(warnings))


def _has_token(up: _Up) -> Answer:
    return YES if read_token(up.files.token) else no("there is none")


def _make_token(files: ClusterFiles) -> None:
    files.prepare()
    make_token(files.token)


def _are_gone(up: _Up, surplus: Mapping[str, NodeRecord]) -> Answer:
    now = record.read_nodes(up.files)
    left = [name for name, node in surplus.items() if now.get(name) == node]
    return no(f"still there: {', '.join(left)}") if left else YES


def _are_started(up: _Up) -> Answer:
    missing = up.difference().missing
    return no(f"not there: {', '.join(plan.name for plan in missing)}") if missing else YES


def _start(up: _Up) -> None:
    """Start every missing node, side by side; a new head gets new ports."""
    up.files.prepare()
    missing = up.difference().missing
    cluster = up.cluster()
    if cluster is None or any(plan.is_head for plan in missing):
        simulated = any(plan.gpus and plan.gpu_ids is None for plan in up.plans)
        cluster = ClusterRecord(up.spec.name, Ports(*processes.free_ports(2)), simulated, up.spec.auth)
        record.write(up.files, up.tools.backend, cluster)
    for plan in missing:
        snapshot.start(up.files, plan, cluster.ports, environ=up.tools.environ)


def _answer(up: _Up) -> Answer:
    diagnosis.refuse_dead(up.files)
    answering, detail = answer(up.files, up.cluster())
    silent = [plan.name for plan in up.plans if plan.name not in answering]
    if detail == NO_DASHBOARD:
        raise OutsideError(
            "the head's dashboard has ended; what runs on the cluster goes on, but nobody can ask it",
            where=str(up.files.ray_logs("head") / "dashboard.log"),
            hint="Make the cluster anew, which ends everything on it: invoke cluster.up --recreate",
        )
    return no(detail or f"waiting for {', '.join(silent)}") if silent else YES
