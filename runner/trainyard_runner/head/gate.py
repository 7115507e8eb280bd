"""The smoke test: asks every node, side by side, and records what must hold before a task
starts.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import ray

from trainyard_runner import each_gpu, shipped
from trainyard_runner.head import gpu_rungs, placing, rungs
from trainyard_runner.head.rungs import Answer
from trainyard_runner.wire import members, nodes, shares
from trainyard_runner.wire.check import Check
from trainyard_runner.wire.fit import room
from trainyard_runner.wire.plan import Gate, Plan, task_of

_FACTS_DEADLINE = 60.0
_TORCH_DEADLINE = 180.0
_FETCH_DEADLINE = 60.0
# Until all have met, and some more for the slowest worker.
_GPUS_DEADLINE = 2 * each_gpu.MEET_SECONDS
_MANY = 8
_WORTH_A_NOTE = 3.0


class StopAskedError(Exception):
    """The run was stopped while the gate waited."""


class SmokeGate:
    """Climbs the rungs; `record` writes each check as it is known, `describe` what a node is made
    of.
    """

    def __init__(
        self,
        plan: Plan,
        runner: shipped.Package,
        *,
        record: Callable[[Check], None],
        describe: Callable[[dict[str, Any]], None],
        note: Callable[[str], None],
        stop_asked: Callable[[], bool],
    ) -> None:
        self._plan = plan
        self._gate: Gate = plan.gate
        self._runner = runner
        self._write = record
        self._describe = describe
        self._note = note
        self._stop_asked = stop_asked
        self._checks: list[Check] = []
        self._free: dict[str, dict[str, float]] = {}

    def pass_through(self) -> Check | None:
        """Check everything; return the first check that failed. Raises StopAskedError."""
        alive = self._wait_for_nodes()
        answers, blobs = self._ask(alive)
        answers = self._on_each_gpu(answers)
        alive = [answer.node for answer in answers]

        for answer, facts in rungs.with_facts(answers):
            self._describe(_node_fields(answer.node, facts))

        head = rungs.Head(ray.__version__, platform.python_version())
        self._record(rungs.task(answers, self._gate))
        self._record(rungs.versions(answers, head, self._gate))
        self._record(gpu_rungs.gpus(answers, self._gate))
        self._record(gpu_rungs.torch(answers, self._gate))
        self._record(gpu_rungs.isolation(answers, self._gate))
        self._record(gpu_rungs.graphics(answers, self._gate))

        if self._gate.needs.get("transfer", True) and rungs.first_failed(self._checks) is None:
            self._transfer(alive, blobs)

        self._record(rungs.space(answers, self._gate))
        plan = shares.settled_plan(self._plan, alive)
        tasks = plan.tasks or ([task_of(0, plan.sweep["task"])] if plan.sweep else ())
        fits = room(tasks, self._gate, alive, together=self._plan.together)
        self._record([fits] if fits else [])

        return rungs.first_failed(self._checks)

    def _record(self, checks: Iterable[Check]) -> None:
        for check in checks:
            self._checks.append(check)
            self._write(check)

    def _wait_for_nodes(self) -> Sequence[nodes.Node]:
        """Wait until every declared node has joined: Ray starts jobs before its workers are there
        (ray PR#61046).
        """
        began = time.monotonic()
        least = self._gate.needs.get("min_nodes") or 0
        noted = False

        while True:
            alive = members.declared(self._gate, placing.alive())
            missing = [node.name for node in members.missing(self._gate, alive)]
            complete = not missing and len(alive) >= least
            waited = time.monotonic() - began
            if complete or waited >= self._gate.wait:
                self._record(rungs.nodes(self._gate, alive, seconds=round(waited, 2)))
                return alive

            if waited > _WORTH_A_NOTE and not noted:
                noted = True
                awaited = sorted(missing) or [f"{least - len(alive)} more nodes"]
                self._note(
                    f"waiting for {', '.join(awaited)} to join, at most {self._gate.wait:.0f} s"
                )

            self._check_stop()
            time.sleep(0.2)

    def _ask(self, alive: Sequence[nodes.Node]) -> tuple[list[Answer], dict[str, Any]]:
        """Run one task on every node; it collects all that this node can say."""
        if any(node.gpus for node in alive):
            free = ray._private.state.available_resources_per_node()
        else:
            free = {}

        self._free = free
        function = ray.remote(num_cpus=0, max_calls=0, max_retries=0, num_returns=2)(shipped.facts)
        began = time.monotonic()
        asked: dict[Any, tuple[nodes.Node, Any, bool]] = {}

        for node in alive:
            isolated = node.gpus >= 1 and free.get(node.node_id, {}).get("GPU", 0) >= 1
            options = {"num_gpus": 1 if isolated else 0, "scheduling_strategy": placing.on(node)}
            reply, blob = function.options(**options).remote(
                self._question(node, isolated, len(alive)), self._runner
            )
            asked[reply] = (node, blob, isolated)

        if self._asks_torch(alive):
            deadline = _TORCH_DEADLINE
        else:
            deadline = _FACTS_DEADLINE

        answers = {}
        for reply, seconds in self._as_they_come(list(asked), deadline):
            node, _, isolated = asked[reply]
            answers[node.node_id] = _answer(node, reply, seconds, isolated=isolated)

        late = {
            node.node_id: Answer(
                node, None, deadline, problem=f"no answer within {time.monotonic() - began:.0f} s"
            )
            for node, _, _ in asked.values()
        }

        ordered = [answers.get(node.node_id, late[node.node_id]) for node in alive]
        kept = rungs.without_gone(ordered, placing.alive(), self._gate)
        ids = {answer.node.node_id for answer in kept}
        return kept, {node.name: blob for node, blob, _ in asked.values() if node.node_id in ids}

    def _on_each_gpu(self, answers: list[Answer]) -> list[Answer]:
        """Hold every GPU of a node by a task of its own, where none is in use and there are
        several.
        """
        function = ray.remote(num_cpus=0, num_gpus=1, max_calls=0, max_retries=0)(shipped.own_gpu)
        asked: dict[Any, str] = {}
        for answer in answers:
            node = answer.node
            gpus = int(answer.node.gpus)
            # What was free before anybody was asked: Ray's numbers lag behind a task that just
            # ended.
            if (
                not answer.isolated
                or gpus < 2
                or self._free.get(node.node_id, {}).get("GPU", 0) < gpus
            ):
                continue

            for index in range(gpus):
                question = {
                    "meeting": f"{self._plan.run}:{node.node_id}",
                    "index": index,
                    "count": gpus,
                }
                reply = function.options(scheduling_strategy=placing.on(node)).remote(
                    question, self._runner
                )
                asked[reply] = node.node_id

        said: dict[str, list[dict[str, Any]]] = {}
        for reply, _ in self._as_they_come(list(asked), _GPUS_DEADLINE):
            said.setdefault(asked[reply], []).append(_got(reply))

        for node_id in set(asked.values()):
            each_gpu.forget(f"{self._plan.run}:{node_id}")

        return [
            replace(one, each=_together(said.get(one.node.node_id, ()), one)) for one in answers
        ]

    def _question(self, node: nodes.Node, isolated: bool, count: int) -> dict[str, Any]:
        real = node.gpus > 0 and not self._gate.simulated_gpus
        return {
            "gpus": real,
            "torch": real or bool(self._gate.needs.get("torch")),
            "isolated": isolated and real,
            "graphics": node.gpus > 0 and bool(self._gate.needs.get("graphics")),
            "timeout": 60.0,
            # Large enough to leave the control path; small where very many pairs are tried.
            "bytes": (8 if count <= _MANY else 1) * 1024 * 1024,
        }

    def _asks_torch(self, alive: Sequence[nodes.Node]) -> bool:
        return any(self._question(node, False, len(alive))["torch"] for node in alive)

    def _transfer(self, alive: Sequence[nodes.Node], blobs: dict[str, Any]) -> None:
        began = time.monotonic()
        function = ray.remote(num_cpus=0, max_calls=0, max_retries=0)(shipped.fetch)
        asked = {}

        for node in alive if len(alive) > 1 else ():
            others = {name: [blob] for name, blob in blobs.items() if name != node.name}
            reply = function.options(scheduling_strategy=placing.on(node)).remote(
                others, _FETCH_DEADLINE / 2, self._runner
            )
            asked[reply] = node.name

        results: dict[str, dict[str, Any]] = {}
        for name in asked.values():
            results[name] = {"problem": f"no answer within {_FETCH_DEADLINE:.0f} s"}

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


def _answer(node: nodes.Node, reply: Any, seconds: float, *, isolated: bool) -> Answer:
    said = _got(reply)
    if "problem" in said:
        return Answer(node, None, seconds, problem=said["problem"])
    return Answer(node, said, seconds, isolated=isolated)


def _node_fields(node: nodes.Node, facts: dict[str, Any]) -> dict[str, Any]:
    versions = {"python": facts["python"], "ray": facts["ray"]}
    gpus = facts.get("nvidia_smi", {}).get("models", [])
    return {"name": node.name, "group": node.group, "gpus": gpus, **versions, **facts["machine"]}


def _together(said: Sequence[dict[str, Any]], answer: Answer) -> tuple[dict[str, Any], ...]:
    """Return what was seen while all GPUs were held; nothing if somebody else took one of them
    meanwhile.
    """
    held = [one for one in said if one.get("met") or "problem" in one]
    if len(held) == int(answer.node.gpus):
        return tuple(held)
    return ()


def _got(reply: Any) -> dict[str, Any]:
    try:
        said: dict[str, Any] = ray.get(reply)
    except Exception as error:  # whatever Ray raises is what the node says
        lines = [line for line in str(error).splitlines() if line.strip()]
        return {"problem": f"{type(error).__name__}: {lines[-1].strip() if lines else ''}"}
    return said
