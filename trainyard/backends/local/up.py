"""The steps that make a local cluster match its file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from trainyard.backends import ray_nodes, replace_head, wording
from trainyard.backends.contract import Tools
from trainyard.backends.local import layout, machine, nodes, records, view
from trainyard.backends.local.layout import NodePlan, Ports
from trainyard.backends.local.records import ClusterFiles, ClusterRecord, NodeRecord
from trainyard.errors import OutsideError, RequestError
from trainyard.seams import processes
from trainyard.spec.cluster import ClusterSpec
from trainyard.steps import YES, Answer, Step, no

# A head and two workers took 5 s on 2 idle cores; a busy machine may need many times that, and several tries.
READY_SECONDS = 300.0


@dataclass(frozen=True)
class _Wanted:
    """What `cluster.up` was asked for."""

    spec: ClusterSpec
    tools: Tools
    files: ClusterFiles
    plans: tuple[NodePlan, ...]


def up_steps(spec: ClusterSpec, tools: Tools) -> list[Step]:
    """Return the steps that make the cluster match its file."""
    ray_nodes.refuse_growing_groups(spec, hint="Give the group a fixed `count`: this machine does not get larger.")
    wanted = _Wanted(spec, tools, ClusterFiles(tools.state), _plans(spec, tools))
    unwanted = _unwanted(wanted)
    refused = _refusal(wanted, unwanted)
    steps = [replace_head.step(refused)] if refused else []
    steps.append(Step("Check this machine", done=lambda: _check(wanted), do=_nothing))
    if spec.auth == "token":
        steps.append(
            Step("Make the cluster's token", done=lambda: _has_token(wanted), do=lambda: _make_token(wanted.files))
        )
    remove = f"Remove {wording.named(tuple(unwanted))}"
    if unwanted:
        steps.append(
            Step(
                remove,
                done=lambda: _are_gone(wanted, unwanted),
                do=lambda: nodes.end(wanted.files, unwanted),
                disruptive=bool(nodes.running(unwanted)),
            )
        )
    start = f"Start {_to_start(wanted)}"
    steps.append(
        Step(
            start,
            done=lambda: _are_started(wanted),
            do=lambda: _start_missing(wanted),
            after=remove if unwanted else None,
        )
    )
    answer = wording.all_answer(len(wanted.plans))
    steps.append(
        Step(answer, done=lambda: _answer(wanted), do=_nothing, deadline=READY_SECONDS, every=0.1, after=start)
    )
    return steps


def _plans(spec: ClusterSpec, tools: Tools) -> tuple[NodePlan, ...]:
    # nvidia-smi may take seconds: it is asked only where GPUs matter.
    gpus = any(node.gpus for node in spec.nodes())
    found = machine.gpu_ids(tools.environ) if gpus else ()
    return layout.node_plans(spec, cpus=machine.cpus(), memory=machine.memory(), gpu_ids=found)


def _difference(wanted: _Wanted) -> nodes.Difference:
    recorded = records.read_nodes(wanted.files)
    return nodes.compare(wanted.plans, recorded, running=nodes.running(recorded))


def _unwanted(wanted: _Wanted) -> Mapping[str, NodeRecord]:
    """Return the nodes that have to go."""
    recorded = records.read_nodes(wanted.files)
    return recorded if wanted.tools.recreate else {name: recorded[name] for name in _difference(wanted).unwanted}


def _refusal(wanted: _Wanted, unwanted: Mapping[str, NodeRecord]) -> RequestError | None:
    """Return why the running head may not go: all runs end with it, so that it must be asked for."""
    head = unwanted.get("head")
    if head is None or wanted.tools.recreate or "head" not in nodes.running(unwanted):
        return None
    plan = next(plan for plan in wanted.plans if plan.is_head)
    return replace_head.refusal(ray_nodes.changes(json.loads(head.plan), plan))


def _check(wanted: _Wanted) -> Answer:
    missing = _difference(wanted).missing
    warnings = machine.check(missing, machine.look()) if missing else []
    return Answer(True, "; ".join(warnings))


def _nothing() -> None:
    """Change nothing: such a step only asks, or waits for what an earlier one began."""


def _has_token(wanted: _Wanted) -> Answer:
    return YES if records.read_token(wanted.files) else no("there is none")


def _make_token(files: ClusterFiles) -> None:
    files.prepare()
    records.make_token(files)


def _are_gone(wanted: _Wanted, unwanted: Mapping[str, NodeRecord]) -> Answer:
    now = records.read_nodes(wanted.files)
    left = [name for name, record in unwanted.items() if now.get(name) == record]
    return no(f"still there: {', '.join(left)}") if left else YES


def _are_started(wanted: _Wanted) -> Answer:
    missing = _difference(wanted).missing
    return no(f"not there: {', '.join(plan.name for plan in missing)}") if missing else YES


def _start_missing(wanted: _Wanted) -> None:
    """Start every missing node, side by side; a new head gets new ports."""
    files = wanted.files
    files.prepare()
    missing = _difference(wanted).missing
    record = records.read_cluster(files)
    if record is None or any(plan.is_head for plan in missing):
        ports = Ports(*processes.free_ports(2))
        simulated = any(plan.gpus and plan.gpu_ids is None for plan in wanted.plans)
        record = ClusterRecord(wanted.spec.name, ports, simulated, wanted.spec.auth)
        records.write_cluster(files, record)
    for plan in missing:
        nodes.start(files, plan, record.ports, environ=wanted.tools.environ)


def _answer(wanted: _Wanted) -> Answer:
    nodes.refuse_dead(wanted.files)
    answering, seen = view.answering(wanted.files, records.read_cluster(wanted.files))
    silent = [plan.name for plan in wanted.plans if plan.name not in answering]
    if seen == view.NO_DASHBOARD:
        raise OutsideError(
            "the head's dashboard has ended; what runs on the cluster goes on, but nobody can ask it",
            where=str(wanted.files.node_temp("head") / "session_latest" / "logs" / "dashboard.log"),
            hint="Make the cluster anew, which ends everything on it: invoke cluster.up --recreate",
        )
    return no(seen or f"waiting for {', '.join(silent)}") if silent else YES


def _to_start(wanted: _Wanted) -> str:
    """Name the nodes that will be started; the whole cluster where that is all of it, or nothing is to be done."""
    missing = () if wanted.tools.recreate else _difference(wanted).missing
    if 0 < len(missing) < len(wanted.plans):
        return wording.named(tuple(plan.name for plan in missing))
    return wording.whole(len(wanted.plans))
