"""The smoke test: asks all nodes at once, and decides if tasks may start."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import ray

from trainyard_runner import each_gpu, shipped
from trainyard_runner.head import gpu_rungs, placing, rungs
from trainyard_runner.head.rungs import Answer
from trainyard_runner.wire import members, nodes, shares
from trainyard_runner.wire.events import Check, Event, NodeFound, Note
from trainyard_runner.wire.fit import room
from trainyard_runner.wire.plan import Gate, Plan, task_of
from trainyard_runner.wire.text import last_line

_NODES_DEADLINE = 60.0
_FACTS_DEADLINE = 60.0
_TORCH_DEADLINE = 180.0
_FETCH_DEADLINE = 60.0
# Half of this is for the slowest worker to start, half for a node's tasks to wait for each other.
_GPUS_DEADLINE = 2 * each_gpu.MEET_SECONDS
_MANY = 8
_WORTH_A_NOTE = 3.0


class StopAskedError(Exception):
    """Ray asked the run to stop before its tasks began."""


class SmokeGate:
    """Runs the rungs (kinds of checks) one after the other."""

    def __init__(
        self,
        plan: Plan,
        runner: shipped.Package,
        *,
        write: Callable[[Event], None],
        stop_asked: Callable[[], bool],
    ) -> None:
        """`write` gets each check's result, and each node's facts."""
        self._plan = plan
        self._gate: Gate = plan.gate
        self._runner = runner
        self._write = write
        self._stop_asked = stop_asked
        self._checks: list[Check] = []
        self._free: dict[str, dict[str, float]] = {}

    def pass_through(self) -> Check | None:
        """Run all checks; return the first that failed, or None.

        Transfers between nodes are tried only if all checks before have passed.
        Raises StopAskedError.
        """
        alive = self._wait_for_nodes()
        answers, blobs = self._ask(alive)
        answers = self._on_each_gpu(answers)
        alive = [answer.node for answer in answers]

        for answer, facts in rungs.with_facts(answers):
            self._write(_found(answer.node, facts))

        wanted = (self._gate.ray or ray.__version__, platform.python_version())
        self._record(rungs.task(answers))
        self._record(rungs.versions(answers, wanted))
        self._record(gpu_rungs.gpus(answers, self._gate))
        self._record(gpu_rungs.torch(answers, self._gate))
        self._record(gpu_rungs.isolation(answers, self._gate))
        self._record(gpu_rungs.graphics(answers, self._gate))

        if self._gate.needs.get("transfer", True) and rungs.first_failed(self._checks) is None:
            self._transfer(alive, blobs)

        self._record(rungs.space(answers, self._gate))
        self._record_room(alive)
        return rungs.first_failed(self._checks)

    def _record(self, checks: Iterable[Check]) -> None:
        for check in checks:
            self._checks.append(check)
            self._write(check)

    def _record_room(self, alive: Sequence[nodes.Node]) -> None:
        plan = shares.settled_plan(self._plan, alive)
        tasks = plan.tasks
        if not tasks and plan.sweep:
            tasks = (task_of(plan.sweep["task"]),)
        check = room(tasks, self._gate, alive, together=plan.together)
        if check is not None:
            self._record([check])

    def _wait_for_nodes(self) -> Sequence[nodes.Node]:
        """Wait until all required nodes have joined; return the living ones.

        Ray starts jobs before its nodes have joined (ray PR#61046). Required
        are all declared nodes that are not optional, and at least `min_nodes`
        nodes. After a timeout, the check `nodes` fails.
        """
        began = time.monotonic()
        least = self._gate.needs.get("min_nodes") or 0
        is_noted = False

        while True:
            alive = members.declared(self._gate, placing.alive())
            missing = nodes.names_of(members.missing(self._gate, alive))
            is_complete = not missing and len(alive) >= least
            waited = time.monotonic() - began
            if is_complete or waited >= _NODES_DEADLINE:
                self._record(rungs.nodes(self._gate, alive, seconds=round(waited, 2)))
                return alive

            if waited > _WORTH_A_NOTE and not is_noted:
                is_noted = True
                awaited = sorted(missing) or [_more_nodes(least - len(alive))]
                text = f"waiting for {', '.join(awaited)} to join, at most {_NODES_DEADLINE:.0f} s"
                self._write(Note(text))

            self._check_stop()
            time.sleep(0.2)

    def _ask(self, alive: Sequence[nodes.Node]) -> tuple[list[Answer], dict[str, Any]]:
        """Run one Ray task on every node to collect the node's facts.

        Returns the answers, and by node name a reference to the object that
        other nodes fetch from the node. Nodes that were replaced or removed
        meanwhile are left out of both.
        """
        if any(node.gpus for node in alive):
            self._free = ray._private.state.available_resources_per_node()

        function = ray.remote(num_cpus=0, max_calls=0, max_retries=0, num_returns=2)(shipped.facts)
        began = time.monotonic()
        asked: dict[Any, _Asked] = {}
        deadline = _FACTS_DEADLINE
        for node in alive:
            is_isolated = node.gpus >= 1 and self._free_gpus(node) >= 1
            question = self._question(node, is_isolated=is_isolated, count=len(alive))
            if question["torch"]:
                deadline = _TORCH_DEADLINE
            on_node = function.options(
                num_gpus=1 if is_isolated else 0, scheduling_strategy=placing.on(node)
            )
            reply, blob = on_node.remote(question, self._runner)
            asked[reply] = _Asked(node, blob, is_isolated)

        answers = {}
        for reply, seconds in self._as_they_come(list(asked), deadline):
            node = asked[reply].node
            answers[node.node_id] = _answer(node, reply, seconds, isolated=asked[reply].is_isolated)

        silence = f"no answer within {time.monotonic() - began:.0f} s"
        for node in alive:
            answers.setdefault(node.node_id, Answer(node, None, deadline, problem=silence))

        ordered = [answers[node.node_id] for node in alive]
        kept = rungs.without_gone(ordered, placing.alive(), self._gate)
        ids = {answer.node.node_id for answer in kept}
        blobs = {node.name: blob for node, blob, _ in asked.values() if node.node_id in ids}
        return kept, blobs

    def _free_gpus(self, node: nodes.Node) -> float:
        """Return how many GPUs of a node were free before the smoke test.

        For a moment after a task has ended, Ray still counts the task's GPU as
        used.
        """
        return self._free.get(node.node_id, {}).get("GPU", 0)

    def _on_each_gpu(self, answers: list[Answer]) -> list[Answer]:
        """Run a task on each GPU; add the GPUs that it sees to the answers.

        The tasks of a node run in parallel. They run only on nodes that have at
        least two GPUs, all of them free.
        """
        function = ray.remote(num_cpus=0, num_gpus=1, max_calls=0, max_retries=0)(shipped.own_gpu)
        asked: dict[Any, str] = {}
        for answer in answers:
            node = answer.node
            gpus = int(node.gpus)
            if not answer.isolated or gpus < 2 or self._free_gpus(node) < gpus:
                continue

            on_node = function.options(scheduling_strategy=placing.on(node))
            meeting = f"{self._plan.run}:{node.node_id}"
            for index in range(gpus):
                question = {"meeting": meeting, "index": index, "count": gpus}
                asked[on_node.remote(question, self._runner)] = node.node_id

        seen: dict[str, list[dict[str, Any]]] = {}
        for reply, _ in self._as_they_come(list(asked), _GPUS_DEADLINE):
            seen.setdefault(asked[reply], []).append(_got(reply))

        for node_id in set(asked.values()):
            each_gpu.forget(f"{self._plan.run}:{node_id}")

        with_each = []
        for answer in answers:
            of_node = seen.get(answer.node.node_id, ())
            with_each.append(replace(answer, each=_together(of_node, answer)))
        return with_each

    def _question(self, node: nodes.Node, *, is_isolated: bool, count: int) -> dict[str, Any]:
        real = node.gpus > 0 and not self._gate.simulated_gpus
        return {
            "gpus": real,
            "torch": real or bool(self._gate.needs.get("torch")),
            "isolated": is_isolated and real,
            "graphics": node.gpus > 0 and bool(self._gate.needs.get("graphics")),
            "timeout": 60.0,
            # Objects of 1 MiB go through Ray's object store; smaller ones may travel inside
            # messages. With more than _MANY nodes, 8 MiB for each pair would take too long.
            "bytes": (8 if count <= _MANY else 1) * 1024 * 1024,
        }

    def _transfer(self, alive: Sequence[nodes.Node], blobs: dict[str, Any]) -> None:
        began = time.monotonic()
        function = ray.remote(num_cpus=0, max_calls=0, max_retries=0)(shipped.fetch)
        asked = {}
        results: dict[str, dict[str, Any]] = {}
        for node in alive if len(alive) > 1 else ():
            others = {name: [blob] for name, blob in blobs.items() if name != node.name}
            on_node = function.options(scheduling_strategy=placing.on(node))
            asked[on_node.remote(others, _FETCH_DEADLINE / 2, self._runner)] = node.name
            results[node.name] = {"problem": f"no answer within {_FETCH_DEADLINE:.0f} s"}

        for reply, _ in self._as_they_come(list(asked), _FETCH_DEADLINE):
            results[asked[reply]] = _got(reply)

        self._record(rungs.transfer(results, round(time.monotonic() - began, 3)))

    def _as_they_come(self, replies: list[Any], deadline: float) -> Iterable[tuple[Any, float]]:
        began = time.monotonic()
        while replies and time.monotonic() - began < deadline:
            self._check_stop()
            ready, replies = ray.wait(replies, num_returns=1, timeout=0.2)
            for reply in ready:
                yield reply, round(time.monotonic() - began, 3)

    def _check_stop(self) -> None:
        if self._stop_asked():
            raise StopAskedError


class _Asked(NamedTuple):
    """A node that was asked for its facts.

    `blob`: a reference to the object that the other nodes fetch. `is_isolated`:
    the task on the node holds one GPU.
    """

    node: nodes.Node
    blob: Any
    is_isolated: bool


def _answer(node: nodes.Node, reply: Any, seconds: float, *, isolated: bool) -> Answer:
    said = _got(reply)
    if "problem" in said:
        return Answer(node, None, seconds, problem=said["problem"])
    return Answer(node, said, seconds, isolated=isolated)


def _found(node: nodes.Node, facts: dict[str, Any]) -> NodeFound:
    gpus = facts.get("nvidia_smi", {}).get("models", [])
    versions = {"python": facts["python"], "ray": facts["ray"]}
    return NodeFound(node.name, node.group, gpus, **versions, **facts["machine"])


def _more_nodes(count: int) -> str:
    return f"{count} more node{'' if count == 1 else 's'}"


def _together(said: Sequence[dict[str, Any]], answer: Answer) -> tuple[dict[str, Any], ...]:
    """Return what a node's tasks saw while together they held all its GPUs.

    Returns () if they did not run at the same time, for example because another
    program held a GPU. A task with a problem counts as if it ran.
    """
    held = [one for one in said if one.get("met") or "problem" in one]
    if len(held) == int(answer.node.gpus):
        return tuple(held)
    return ()


def _got(reply: Any) -> dict[str, Any]:
    try:
        said: dict[str, Any] = ray.get(reply)
    except Exception as error:  # any error that Ray raises is the node's problem
        return {"problem": f"{type(error).__name__}: {last_line(str(error))}"}
    return said
