"""A cluster whose nodes are processes or containers of one machine."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainyard_runner.wire.plan import ExpectedNode

from trainyard import versions
from trainyard.backends import contract
from trainyard.backends.contract import ClusterStatus, LogLine, NodeState, NodeStatus, Site
from trainyard.backends.shared import leash as leashes
from trainyard.backends.shared import ray_nodes, record, refusal
from trainyard.backends.shared.leash import Leash
from trainyard.backends.shared.logs import LogFile, followed
from trainyard.backends.shared.ray_nodes import NodePlan
from trainyard.endpoint import Endpoint
from trainyard.errors import NotReadyError, OutsideError, TrainyardError
from trainyard.seams.ray_api import UnreachableError
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.groups import NodeSpec
from trainyard.steps import YES, Answer, Step, no, nothing
from trainyard.wording import all_answer, counted, named

# The result of NodePlan.recorded().
Plan = Mapping[str, Any]
# A head and two workers took 5 to 8 s on 2 idle cores. On a busy machine Ray may retry.
READY_SECONDS = 300.0
_REMOVE = "remove-nodes"
_START = "start-nodes"


@dataclass(frozen=True)
class ObservedNode:
    """A node that exists, and the plan that it was made from.

    `identity` tells nodes of the same name apart. `runs`: the process or
    container is running, or is being restarted. `has_run`: Ray may have run on
    the node. `started` and `made` are in Unix seconds of the machine; a restart
    changes only `started`. `detail` describes a node that is not simply
    running.
    """

    plan: Plan
    identity: object
    runs: bool
    has_run: bool
    started: float | None = None
    detail: str = ""
    made: float | None = None

    @property
    def is_simulated(self) -> bool:
        return self.plan.get("gpu_ids", ()) is None

    def expected(self, name: str) -> ExpectedNode:
        """Return the resources that a run may expect of the node."""
        plan = self.plan
        return ExpectedNode(
            name=name,
            group=plan.get("group", ""),
            cpus=plan.get("cpus"),
            gpus=plan.get("gpus", 0),
            memory=plan.get("memory"),
            resources=plan.get("resources", {}),
        )


@dataclass(frozen=True)
class Difference:
    """The nodes to start (`missing`), and those to remove (`surplus`)."""

    missing: tuple[str, ...]
    surplus: tuple[str, ...]


@dataclass(frozen=True)
class Machine(ABC):
    """The machine whose processes or containers are a cluster's nodes."""

    spec: ClusterSpec
    site: Site

    @property
    @abstractmethod
    def host(self) -> str:
        """Return the machine's name, as the status shows it."""

    @property
    def tunnel(self) -> str | None:
        """Return the host to which a tunnel for `address()` leads, if any."""
        return None

    @property
    def gcs(self) -> str | None:
        """Return the address of Ray's GCS, if this machine can reach it."""
        return None

    @abstractmethod
    def ray_address(self) -> str:
        """Return the address for `ray.init` on this machine.

        Raises NotReadyError without a head.
        """

    @property
    def token_file(self) -> Path:
        return self.site.state / "token"

    @property
    def token(self) -> str | None:
        return record.read_token(self.token_file)

    @abstractmethod
    def nodes(self) -> dict[str, ObservedNode]:
        """Return the nodes by name, running or not, the head first."""

    @property
    @abstractmethod
    def plans(self) -> tuple[NodePlan, ...]:
        """Return the plan of every node that the file names, the head first."""

    @abstractmethod
    def address(self) -> str | None:
        """Return the dashboard's URL; None if no head runs.

        The dashboard may not answer yet.
        """

    @abstractmethod
    def log_files(self, node: str) -> Iterator[LogFile]:
        """Yield the last lines of the nodes' logs, and of Ray's logs there.

        `node` selects one node; "" means all.
        """

    @abstractmethod
    def start(self, missing: Sequence[str]) -> None:
        """Make what these nodes need, then start them in parallel."""

    @abstractmethod
    def remove(self, names: Iterable[str]) -> None:
        """End these nodes, and remove their files or containers."""

    @property
    @abstractmethod
    def leash(self) -> Leash:
        """Return the functions for the cluster's leash."""

    @abstractmethod
    def end_reason(self, name: str) -> TrainyardError:
        """Return the error of a node that ended, with its last lines."""

    def made(self) -> float | None:
        head = self.nodes().get("head")
        if head is None:
            return None
        return head.made

    def desired(self) -> dict[str, Plan]:
        return {plan.name: plan.recorded() for plan in self.plans}

    def difference(self) -> Difference:
        """Compare the file's nodes with those that run.

        A dead or changed node is both surplus and missing. If the head is dead
        or changed, so are all workers: a worker cannot outlive its head.
        """
        desired = self.desired()
        nodes = self.nodes()
        fitting = set()
        for name, node in nodes.items():
            if node.runs and node.plan == desired.get(name):
                fitting.add(name)
        if "head" not in fitting:
            fitting = set()
        return Difference(
            missing=tuple(name for name in desired if name not in fitting),
            surplus=tuple(name for name in nodes if name not in fitting),
        )

    def make_token(self) -> None:
        if self.spec.auth == "token":
            record.make_token(self.token_file)

    def alive(self, nodes: Mapping[str, ObservedNode]) -> tuple[frozenset[str], str]:
        """Return the living nodes' names, and why Ray was silent, if known."""
        address = self.address()
        if address is None and not nodes:
            return frozenset(), ""
        if address is None:
            return frozenset(), "the head does not run"
        started = {name: node.started for name, node in nodes.items() if node.started is not None}
        try:
            return ray_nodes.alive(address, self.token, started=started), ""
        except UnreachableError:
            return frozenset(), "waiting for the dashboard"
        except OutsideError as error:
            return frozenset(), error.what

    def status(self) -> ClusterStatus:
        """Ask the machine and Ray for the status; include undeclared nodes."""
        nodes = self.nodes()
        alive, detail = self.alive(nodes)
        declared = {node.name: node for node in self.spec.nodes()}
        statuses = []
        details = [detail]
        for name in {**declared, **nodes}:
            status = self._status(name, declared.get(name), nodes.get(name), answers=name in alive)
            statuses.append(status)
            if status.detail:
                details.append(f"{name}: {status.detail}")

        leash = None
        if nodes:
            leash = self.leash.observe()
        token_file = None
        if self.token:
            token_file = self.token_file
        differences = (
            *self._differences(nodes),
            *leashes.differences(self.spec, self.made(), leash),
        )
        return ClusterStatus(
            name=self.spec.name,
            backend=self.site.backend,
            state=ray_nodes.cluster_state(status.state for status in statuses),
            nodes=tuple(statuses),
            address=self.address(),
            token_file=token_file,
            gcs=self.gcs,
            simulated_gpus=any(node.is_simulated for node in nodes.values()),
            detail="; ".join(filter(None, details)),
            tunnel=self.tunnel,
            differences=differences,
            token=self.token,
            leash=leash,
        )

    def endpoint(self) -> Endpoint:
        """Return the endpoint, or raise NotReadyError if no head runs."""
        nodes = self.nodes()
        address = self.address()
        if address is None:
            raise contract.not_up(self.spec.name)

        return Endpoint(
            cluster=self.spec.name,
            address=address,
            token=self.token,
            simulated_gpus=any(node.is_simulated for node in nodes.values()),
            expected=tuple(node.expected(name) for name, node in nodes.items()),
            ray_version=versions.RAY,
            image=nodes["head"].plan.get("image"),
            tunnel=self.tunnel,
            down=tuple((name, node.detail) for name, node in nodes.items() if not node.runs),
            ray_address=self.ray_address,
        )

    def logs(self, *, follow: bool, node: str = "") -> Iterator[LogLine]:
        """Return the last lines of log files.

        With `follow`, also returns new lines while nodes run. `node` selects
        one node; "" means all. Raises NotReadyError without nodes,
        UnknownNodeError for an unknown `node`.
        """
        nodes = self.nodes()
        if node or not nodes:
            contract.pick(nodes, node, cluster=self.spec.name)

        def goes_on() -> bool:
            if not follow:
                return False
            return any(found.runs for name, found in self.nodes().items() if node in ("", name))

        return followed(lambda: self.log_files(node), goes_on)

    def _status(
        self, name: str, declared: NodeSpec | None, node: ObservedNode | None, *, answers: bool
    ) -> NodeStatus:
        state = _state(node, is_declared=declared is not None, answers=answers)
        details = []
        if state == "starting":
            details.append("it runs, and is not in Ray (yet, or any more)")
        if node and node.detail and state != "up":
            details.append(node.detail)
        detail = "; ".join(details)

        size: ExpectedNode | NodeSpec | None = declared
        if node:
            size = node.expected(name)
        if size is None:
            return NodeStatus(name, "", self.host, state, None, 0, detail)
        group = size.group or ""
        return NodeStatus(name, group, self.host, state, size.cpus, size.gpus, detail)

    def _differences(self, nodes: Mapping[str, ObservedNode]) -> Iterator[str]:
        if not nodes:
            return
        try:
            desired = self.desired()
        except TrainyardError as error:
            yield error.what
            return
        for name, plan in desired.items():
            if name in nodes:
                for change in ray_nodes.changes(nodes[name].plan, plan):
                    yield f"{name}: {change}"


def node_steps(machine: Machine, preparations: Sequence[Step] = ()) -> list[Step]:
    """Return the steps of `up`, a refusal first if one is needed.

    With --recreate all nodes count as surplus.
    """
    surplus = machine.nodes()
    difference = machine.difference()
    missing: Sequence[str] = ()
    if not machine.site.wishes.recreate:
        surplus = {name: surplus[name] for name in difference.surplus}
        missing = difference.missing

    steps = [*_refusal(machine), *preparations]
    after = None
    if surplus:
        steps.append(_removal_step(machine, surplus))
        after = _REMOVE

    steps.append(_start_step(machine, missing, after=after))
    steps += leashes.steps(machine.spec, machine.site, machine.leash, after=_START)
    steps.append(
        Step(
            "nodes-answer",
            all_answer(len(machine.spec.nodes())),
            lambda: _all_answer(machine),
            nothing,
            deadline=READY_SECONDS,
            after=_START,
        )
    )
    steps += leashes.proof(machine.spec, machine.leash, after=_START)
    return steps


def _removal_step(machine: Machine, surplus: Mapping[str, ObservedNode]) -> Step:
    def are_gone() -> Answer:
        now = machine.nodes()
        left = []
        for name, node in surplus.items():
            if name in now and now[name].identity == node.identity:
                left.append(name)
        if left:
            return no(f"still there: {', '.join(left)}")
        return YES

    def remove() -> None:
        if "head" in surplus:
            # The old cluster's leash would end the new cluster as well.
            machine.leash.take_off()
        machine.remove(surplus)

    disruptive = any(node.runs for node in surplus.values())
    return Step(_REMOVE, f"Remove {named(tuple(surplus))}", are_gone, remove, disruptive=disruptive)


def _start_step(machine: Machine, missing: Sequence[str], *, after: str | None) -> Step:
    """Return a step to start missing nodes; only its title uses `missing`."""

    def are_started() -> Answer:
        left = machine.difference().missing
        if left:
            return no(f"not there: {', '.join(left)}")
        return YES

    count = len(machine.spec.nodes())
    # The title names the nodes only if some, but not all, are missing.
    if 0 < len(missing) < count:
        what = named(missing)
    elif count > 1:
        what = f"the head and {counted(count - 1, 'worker')}"
    else:
        what = "the head"

    return Step(
        _START,
        f"Start {what}",
        are_started,
        lambda: machine.start(machine.difference().missing),
        after=after,
    )


def _refusal(machine: Machine) -> list[Step]:
    """Without --recreate, refuse to replace a head that may have runs."""
    head = machine.nodes().get("head")
    desired = machine.desired()["head"]
    if head is None or head.plan == desired:
        return []
    if machine.site.wishes.recreate or not (head.runs and head.has_run):
        return []

    return [refusal.of_another_head("; ".join(ray_nodes.changes(head.plan, desired)))]


def _all_answer(machine: Machine) -> Answer:
    nodes = machine.nodes()
    for name, node in nodes.items():
        if not node.runs:
            raise machine.end_reason(name)

    alive, detail = machine.alive(nodes)
    started = None
    if "head" in nodes:
        started = nodes["head"].started
    if not alive and started and time.time() - started > READY_SECONDS:
        raise NotReadyError(
            "the head runs, and its dashboard does not answer any more",
            where=f"last seen: {detail}",
            hint="Replace the cluster: trainyard cluster.up --recreate",
        )

    silent = [node.name for node in machine.spec.nodes() if node.name not in alive]
    if silent:
        return no(detail or f"waiting for {', '.join(silent)}")

    # Ray would place tasks on a node that is gone, and the tasks would be lost.
    gone = sorted(alive - nodes.keys())
    if gone:
        return no(f"Ray still counts {', '.join(gone)}")

    return YES


def _state(node: ObservedNode | None, *, is_declared: bool, answers: bool) -> NodeState:
    if node is None:
        return "absent"
    if not node.runs:
        return "broken"
    if not is_declared:
        return "surplus"
    if answers:
        return "up"
    return "starting"


def ended(name: str, lines: Sequence[str], *, code: int | None = None) -> str:
    """Say that a node ended while it was starting, with its last `lines`."""
    how = ""
    if code is not None:
        how = f" (exit code {code})"
    words = "\n".join(f"    {line}" for line in lines or ["(no output)"])
    return f"{name} ended while it was starting{how}; its last output:\n{words}"
