"""The steps that make a local cluster match its file."""

from __future__ import annotations

from trainyard.backends.contract import Tools
from trainyard.backends.local import layout, machine, nodes, records, view
from trainyard.backends.local.layout import NodePlan, Ports
from trainyard.backends.local.records import ClusterFiles, ClusterRecord
from trainyard.errors import Problem, RequestError
from trainyard.seams import processes
from trainyard.spec.cluster import ClusterSpec
from trainyard.steps import YES, Answer, Step, no

# A head and two workers took 5 s on 2 idle cores; a busy machine may take many times that.
READY_SECONDS = 150.0


def up_steps(spec: ClusterSpec, tools: Tools) -> list[Step]:
    """Return the steps that make the cluster match its file."""
    _refuse_growing_groups(spec)
    files = ClusterFiles(tools.state)
    plans = _plans(spec, tools)
    steps = [Step("Check this machine", done=lambda: _check(plans, files, tools), do=_nothing)]
    if spec.auth == "token":
        steps.append(Step("Make the cluster's token", done=lambda: _has_token(files), do=lambda: _make_token(files)))
    unwanted = _difference(plans, files, tools).unwanted
    if unwanted:
        steps.append(
            Step(
                f"Remove {_named(unwanted)}",
                done=lambda: _are_gone(unwanted, plans, files, tools),
                do=lambda: nodes.end(files, unwanted),
            )
        )
    start = f"Start {_nodes_in_words(plans)}"
    return [
        *steps,
        Step(
            start, done=lambda: _are_started(plans, files, tools), do=lambda: _start_missing(spec, plans, files, tools)
        ),
        Step(
            f"All {len(plans)} nodes answer" if len(plans) > 1 else "The head answers",
            done=lambda: _answer(plans, files),
            do=_nothing,
            deadline=READY_SECONDS,
            every=0.1,
            after=start,
        ),
    ]


def _refuse_growing_groups(spec: ClusterSpec) -> None:
    problems = tuple(
        Problem(f"workers.{index}.max", f"{group.max} is above min ({group.wanted}), so the group should grow")
        for index, group in enumerate(spec.workers)
        if group.max is not None and group.max != group.wanted
    )
    if problems:
        raise RequestError(
            "the local backend cannot grow and shrink worker groups",
            problems=problems,
            hint="Give the group a fixed `count`, or use a backend that can: compose, kuberay, ec2.",
        )


def _plans(spec: ClusterSpec, tools: Tools) -> tuple[NodePlan, ...]:
    gpus = any(node.gpus for node in spec.nodes())
    found = machine.gpu_ids(tools.environ) if gpus else ()
    return layout.node_plans(spec, cpus=machine.cpus(), memory=machine.memory(), gpu_ids=found)


def _difference(plans: tuple[NodePlan, ...], files: ClusterFiles, tools: Tools) -> nodes.Difference:
    """Compare; refuse to replace a running head, which would take the whole cluster along, unless asked to."""
    recorded = records.read_nodes(files)
    running = nodes.running(recorded)
    difference = nodes.compare(plans, recorded, running=running)
    if "head" in difference.unwanted and "head" in running and not tools.recreate:
        raise RequestError(
            "the head in the cluster file is not the head that runs; to replace it ends everything on the cluster",
            where=str(tools.source) if tools.source else None,
            hint="If that is meant: invoke cluster.up --recreate, or invoke cluster.down first.",
        )
    return difference


def _check(plans: tuple[NodePlan, ...], files: ClusterFiles, tools: Tools) -> Answer:
    missing = _difference(plans, files, tools).missing
    warnings = machine.check(missing, machine.look()) if missing else []
    return Answer(True, "; ".join(warnings))


def _nothing() -> None:
    """Change nothing: such a step only asks, or waits for what an earlier one began."""


def _has_token(files: ClusterFiles) -> Answer:
    return YES if records.read_token(files) else no("there is none")


def _make_token(files: ClusterFiles) -> None:
    files.prepare()
    records.make_token(files)


def _are_gone(names: tuple[str, ...], plans: tuple[NodePlan, ...], files: ClusterFiles, tools: Tools) -> Answer:
    left = [name for name in _difference(plans, files, tools).unwanted if name in names]
    return no(f"still there: {', '.join(left)}") if left else YES


def _are_started(plans: tuple[NodePlan, ...], files: ClusterFiles, tools: Tools) -> Answer:
    missing = _difference(plans, files, tools).missing
    return no(f"not there: {', '.join(plan.name for plan in missing)}") if missing else YES


def _start_missing(spec: ClusterSpec, plans: tuple[NodePlan, ...], files: ClusterFiles, tools: Tools) -> None:
    files.prepare()
    missing = _difference(plans, files, tools).missing
    record = records.read_cluster(files)
    if record is None or any(plan.is_head for plan in missing):
        gcs, dashboard = processes.free_ports(2)
        simulated = any(plan.gpus and plan.gpu_ids is None for plan in plans)
        record = ClusterRecord(spec.name, Ports(gcs, dashboard), simulated, spec.auth)
    records.write_cluster(files, record)
    for plan in missing:
        nodes.start(files, plan, record.ports, environ=tools.environ)


def _answer(plans: tuple[NodePlan, ...], files: ClusterFiles) -> Answer:
    nodes.refuse_dead(files)
    answering, seen = view.answering(files, records.read_cluster(files))
    silent = [plan.name for plan in plans if plan.name not in answering]
    if not silent:
        return YES
    return no(seen or f"waiting for {', '.join(silent)}")


def _nodes_in_words(plans: tuple[NodePlan, ...]) -> str:
    workers = len(plans) - 1
    return f"the head and {view.counted(workers, 'worker')}" if workers else "the head"


def _named(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
