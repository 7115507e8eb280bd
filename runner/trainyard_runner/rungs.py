"""The rungs of the smoke test: what each node said, against what must be. Pure: answers in, checks out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from trainyard_runner import members
from trainyard_runner.nodes import Node
from trainyard_runner.plan import Gate

_LEAST_DISK = 512 * 1024 * 1024
_LEAST_SHM = 64 * 1024 * 1024


@dataclass(frozen=True)
class Check:
    """One rung on one node, or on the cluster as a whole (node None)."""

    name: str
    node: str | None
    ok: bool
    detail: str
    seconds: float = 0.0
    skipped: bool = False
    hint: str | None = None

    def event(self) -> dict[str, Any]:
        """Return the fields of its event."""
        return asdict(self)


@dataclass(frozen=True)
class Answer:
    """What one node said: facts, or why there are none. `each` is what tasks saw that held its GPUs, one each."""

    node: Node
    facts: dict[str, Any] | None
    seconds: float
    problem: str | None = None
    isolated: bool = False
    each: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class Head:
    """What every node is compared with."""

    ray: str
    python: str


def without_gone(answers: Sequence[Answer], alive: Sequence[Node], gate: Gate) -> list[Answer]:
    """Return the answers of what is the cluster by now: silent nodes that Ray has come to call dead have left it.

    One that was made anew is in Ray's list twice for a while: then only the dead one is left out. So is one that an
    autoscaler may remove.
    """
    now, names = {node.node_id for node in alive}, {node.name for node in alive}
    kept = []
    for answer in answers:
        if answer.facts is not None or answer.node.node_id in now:
            kept.append(answer)
        elif answer.node.name not in names and not members.may_leave(gate, answer.node):
            kept.append(replace(answer, problem="it left the cluster while it was asked"))
    return kept


def nodes(gate: Gate, alive: Sequence[Node], *, seconds: float) -> Iterator[Check]:
    """Every node that the cluster file declares is there."""
    names = [node.name for node in alive]
    lacking = [node.name for node in members.missing(gate, alive)]
    expected = [node.name for node in gate.nodes or () if not node.optional and not gate.names_change]
    for name in [*(expected or names), *(name for name in lacking if name not in expected)]:
        if name not in lacking:
            yield Check("nodes", name, True, "alive", seconds)
        else:
            hint = f"`invoke cluster.up{gate.flag}` starts what is missing."
            detail = f"not in the cluster after {seconds:.0f} s; there are {', '.join(sorted(names))}"
            yield Check("nodes", name, False, detail, seconds, hint=hint)
    least = gate.needs.get("min_nodes")
    if least is not None:
        hint = "Raise `count` in the cluster file, or lower `smoke.min_nodes` in the job file."
        ok = len(alive) >= least
        yield Check("nodes", None, ok, f"{len(alive)} nodes, the job needs {least}", hint=None if ok else hint)


def task(answers: Sequence[Answer], gate: Gate) -> Iterator[Check]:
    """A task runs on every node."""
    for answer in answers:
        if answer.facts is not None:
            yield Check("task", answer.node.name, True, f"answered in {answer.seconds:.1f} s", answer.seconds)
        else:
            hint = f"Look at the node's raylet and worker logs: `invoke cluster.logs{gate.flag}`."
            yield Check("task", answer.node.name, False, answer.problem or "", answer.seconds, hint=hint)


def versions(answers: Sequence[Answer], head: Head, gate: Gate) -> Iterator[Check]:
    """Ray and Python are the same everywhere."""
    wanted = (gate.ray or head.ray, head.python)
    for answer, facts in _with_facts(answers):
        found = (facts["ray"], facts["python"])
        detail = f"Ray {found[0]}, Python {found[1]}"
        if found == wanted:
            yield Check("versions", answer.node.name, True, detail)
        else:
            hint = "Use the same image or environment on every node; Ray cannot mix versions."
            wrong = f"{detail}; expected Ray {wanted[0]}, Python {wanted[1]}"
            yield Check("versions", answer.node.name, False, wrong, hint=hint)


def gpus(answers: Sequence[Answer], gate: Gate) -> Iterator[Check]:
    """Declared, Ray's and the driver's number of GPUs agree."""
    if not any(answer.node.gpus or members.gpus(gate, answer.node) for answer in answers):
        needed = bool(gate.needs.get("gpus"))
        hint = "Dispatch to a cluster with GPUs, or remove `smoke: {gpus: true}` from the job file."
        detail = "the job needs GPUs, and no node has any" if needed else "no GPUs declared"
        yield Check("gpus", None, not needed, detail, skipped=not needed, hint=hint if needed else None)
        return
    for answer, facts in _with_facts(answers):
        wanted = members.gpus(gate, answer.node)
        if not wanted and not answer.node.gpus:
            yield Check("gpus", answer.node.name, True, "none declared", skipped=True)
        elif wanted != answer.node.gpus:
            hint = f"Repeat `invoke cluster.up{gate.flag}`; the node was started with other resources."
            detail = f"{wanted:g} declared, Ray has {answer.node.gpus:g}"
            yield Check("gpus", answer.node.name, False, detail, hint=hint)
        elif gate.simulated_gpus:
            yield Check("gpus", answer.node.name, True, f"{wanted:g}, simulated; nvidia-smi not asked")
        else:
            yield _real_gpus(answer.node.name, facts["nvidia_smi"], wanted)


def torch(answers: Sequence[Answer], gate: Gate) -> Iterator[Check]:
    """Where torch is, it counts the same GPUs and multiplies matrices correctly on each."""
    needed = bool(gate.needs.get("torch"))
    for answer, facts in _with_facts(answers):
        said = facts.get("torch")
        name = answer.node.name
        if said is None:
            why = "GPUs are simulated" if gate.simulated_gpus and answer.node.gpus else "no GPUs on this node"
            yield Check("torch", name, True, why, skipped=True)
        elif said.get("missing"):
            hint = "Put torch into the image, or remove `smoke: {torch: true}` from the job file." if needed else None
            yield Check("torch", name, not needed, "not importable there", skipped=not needed, hint=hint)
        elif "error" in said:
            yield Check("torch", name, False, said["error"], hint="Driver, CUDA and torch must fit; try a newer image.")
        elif gate.simulated_gpus or not answer.node.gpus:
            yield Check("torch", name, True, f"torch {said['version']}")
        elif said["count"] != answer.node.gpus:
            detail = f"torch {said['version']} sees {said['count']} GPUs, Ray {answer.node.gpus:g}"
            yield Check("torch", name, False, detail, hint="A torch built for CPU only, or a driver that is too old.")
        elif said["wrong"]:
            detail = f"wrong product of matrices on GPU {', '.join(map(str, said['wrong']))}"
            yield Check("torch", name, False, detail, hint="The GPU is faulty: take it out of the cluster.")
        else:
            yield Check("torch", name, True, f"torch {said['version']}, {said['count']} GPUs, products correct")


def isolation(answers: Sequence[Answer], gate: Gate) -> Iterator[Check]:
    """A task with one GPU sees exactly its own."""
    hint = "Nothing may set CUDA_VISIBLE_DEVICES for Ray's workers (RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES)."
    for answer, facts in _with_facts(answers):
        name = answer.node.name
        if answer.node.gpus < 1:
            yield Check("isolation", name, True, "no GPUs on this node", skipped=True)
        elif not answer.isolated:
            yield Check("isolation", name, True, "all GPUs are in use", skipped=True)
        elif len(facts["assigned"]) != 1 or facts["visible"] != facts["assigned"][0]:
            detail = f"a task with GPU {facts['assigned']} sees CUDA_VISIBLE_DEVICES={facts['visible']!r}"
            yield Check("isolation", name, False, detail, hint=hint)
        elif (inside := facts.get("torch_isolated", {}).get("count", 1)) != 1:
            yield Check("isolation", name, False, f"a task with one GPU sees {inside} in torch", hint=hint)
        elif (wrong := _not_its_own(answer.each)) is not None:
            yield Check("isolation", name, False, wrong, hint=hint)
        else:
            suffix = " (simulated)" if gate.simulated_gpus else ""
            seen = f"a 1-GPU task sees GPU {facts['visible']} only"
            if answer.each:
                gpus = ", ".join(sorted(str(one["visible"]) for one in answer.each))
                seen = f"{len(answer.each)} 1-GPU tasks at once see GPU {gpus}, each its own only"
            yield Check("isolation", name, True, f"{seen}{suffix}")


def space(answers: Sequence[Answer], gate: Gate) -> Iterator[Check]:
    """Disk and shared memory have room."""
    for name, key, least in (("disk", "min_disk", _LEAST_DISK), ("shm", "min_shm", _LEAST_SHM)):
        wanted = max(least, gate.needs.get(key) or 0)
        for answer, facts in _with_facts(answers):
            found = facts[name]
            if found is None:
                yield Check(name, answer.node.name, True, "this system has none", skipped=True)
                continue
            ok = found["free"] >= wanted
            detail = f"{_size(found['free'])} free of {_size(found['total'])}"
            where = "Ray's session directory" if name == "disk" else "/dev/shm (Docker: --shm-size)"  # noqa: S108
            hint = None if ok else f"Make room in {where}: at least {_size(wanted)} must be free."
            yield Check(name, answer.node.name, ok, detail, hint=hint)


def transfer(results: dict[str, dict[str, Any]], seconds: float) -> Iterator[Check]:
    """Every node gets every other node's objects."""
    if len(results) < 2:
        yield Check("transfer", None, True, "one node only", skipped=True)
        return
    for node, said in results.items():
        if problem := said.get("problem"):
            yield Check("transfer", node, False, problem, seconds, hint=_OPEN_PORTS)
            continue
        broken = {other: result["error"] for other, result in said.items() if "error" in result}
        if broken:
            detail = "; ".join(f"nothing from {other}: {error}" for other, error in broken.items())
            yield Check("transfer", node, False, detail, seconds, hint=_OPEN_PORTS)
        else:
            rates = ", ".join(f"{result['rate']:.0f} MB/s from {other}" for other, result in said.items())
            yield Check("transfer", node, True, rates, seconds)


_OPEN_PORTS = "The nodes must reach each other on all of Ray's ports (object manager, node manager, workers)."


def first_failed(checks: Sequence[Check]) -> Check | None:
    """Return the check that names the cause."""
    return next((check for check in checks if not check.ok), None)


def _not_its_own(each: Sequence[dict[str, Any]]) -> str | None:
    """Return what is wrong with what tasks saw that each had one GPU, all at the same time."""
    for said in each:
        if problem := said.get("problem"):
            return f"no task with a GPU runs beside the others: {problem}"
        if len(said["assigned"]) != 1 or said["visible"] != said["assigned"][0]:
            return f"a task with GPU {said['assigned']} sees CUDA_VISIBLE_DEVICES={said['visible']!r}"
    seen = sorted(str(said["visible"]) for said in each)
    if len(set(seen)) < len(seen):
        return f"{len(seen)} tasks that run at the same time see GPU {', '.join(seen)}: one of them is shared"
    return None


def _real_gpus(name: str, said: dict[str, Any], wanted: float) -> Check:
    if "error" in said:
        hint = "Install the NVIDIA driver there, and the container toolkit if Ray runs in a container."
        return Check("gpus", name, False, said["error"], hint=hint)
    if said["count"] != wanted:
        hint = "Declare what there is, or make all GPUs visible on the node."
        return Check("gpus", name, False, f"{wanted:g} declared, nvidia-smi counts {said['count']}", hint=hint)
    return Check("gpus", name, True, f"{wanted:g}: declared, Ray's and nvidia-smi's count agree")


def _with_facts(answers: Sequence[Answer]) -> Iterator[tuple[Answer, dict[str, Any]]]:
    for answer in answers:
        if answer.facts is not None:
            yield answer, answer.facts


def _size(amount: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"
