"""The steps that make a cluster of containers match its file."""

from __future__ import annotations

from collections.abc import Mapping

from trainyard.backends import ray_nodes, record, replace_head, wording
from trainyard.backends.compose import found, gpus, host, image, trial, view
from trainyard.backends.compose.start import start
from trainyard.backends.compose.wanted import Wanted, refusal, unwanted, wanted
from trainyard.backends.contract import Tools
from trainyard.seams.docker import compose as docker_compose
from trainyard.seams.docker import containers as docker_containers
from trainyard.seams.docker.containers import Container
from trainyard.spec.cluster import ClusterSpec
from trainyard.steps import YES, Answer, Step, no

# A head and two workers took 8 s on 2 idle cores; a busy machine may need many times that.
READY_SECONDS = 300.0
FIXED = (
    "One Docker host does not get larger: give the group a fixed `count`. "
    "Growing needs a backend that can ask for machines (Kubernetes, EC2)."
)


def up_steps(spec: ClusterSpec, tools: Tools) -> list[Step]:
    """Return the steps that make the cluster match its file."""
    ray_nodes.refuse_growing_groups(spec, hint=FIXED)
    asked = wanted(spec, tools)
    surplus = unwanted(asked)
    pull = image.step(asked.engine, asked.image)
    refused = refusal(asked, surplus)
    steps = [
        *([replace_head.step(refused)] if refused else []),
        Step("Check the Docker host", done=lambda: _check(asked), do=_nothing),
        pull,
        *trial.steps(asked, after=pull.title),
        *gpus.steps(asked, after=pull.title),
        Step(_token_title(spec), done=lambda: _is_recorded(asked), do=lambda: _record(asked)),
    ]
    remove = f"Remove {wording.named(tuple(surplus))}"
    if surplus:
        steps.append(
            Step(
                remove,
                done=lambda: _are_gone(asked, surplus),
                do=lambda: _remove(asked, surplus),
                disruptive=any(container.state in found.RUNNING for container in surplus.values()),
            )
        )
    begin = f"Start {_to_start(asked)}"
    after = remove if surplus else None
    steps.append(Step(begin, done=lambda: _are_started(asked), do=lambda: start(asked), after=after))
    answer = wording.all_answer(len(asked.plans))
    steps.append(Step(answer, done=lambda: _answer(asked), do=_nothing, deadline=READY_SECONDS, after=begin))
    return steps


def _check(asked: Wanted) -> Answer:
    if not asked.tools.recreate and not asked.difference().missing:
        return YES
    trial.refuse_taken_port(asked)
    docker_compose.require(asked.engine)
    return Answer(True, "; ".join(host.warnings(asked.engine, asked.plans, asked.spec.compose.shm_size)))


def _nothing() -> None:
    """Change nothing: such a step only asks, or waits for what an earlier one began."""


def _token_title(spec: ClusterSpec) -> str:
    return "Make the cluster's token" if spec.auth == "token" else "Write down where the cluster is"


def _is_recorded(asked: Wanted) -> Answer:
    if host.read_record(asked.tools) is None:
        return no("nothing is written down")
    return YES if asked.token or asked.spec.auth == "none" else no("there is none")


def _record(asked: Wanted) -> None:
    host.write_record(asked.tools, host.Record(asked.spec.name, asked.engine.address, asked.owner))
    if asked.spec.auth == "token" and asked.token is None:
        record.make_token(host.token_file(asked.tools))


def _are_gone(asked: Wanted, surplus: Mapping[str, Container]) -> Answer:
    now = {one.id for one in asked.containers().values()}
    left = [name for name, one in surplus.items() if one.id in now]
    return no(f"still there: {', '.join(left)}") if left else YES


def _remove(asked: Wanted, surplus: Mapping[str, Container]) -> None:
    for one in surplus.values():
        docker_containers.remove(asked.engine, one.id)


def _are_started(asked: Wanted) -> Answer:
    missing = asked.difference().missing
    return no(f"not there: {', '.join(missing)}") if missing else YES


def _answer(asked: Wanted) -> Answer:
    containers = asked.containers()
    view.refuse_dead(asked.engine, containers)
    answering, seen = view.answer(asked.engine, containers, asked.token)
    silent = [plan.name for plan in asked.plans if plan.name not in answering]
    return no(seen or f"waiting for {', '.join(silent)}") if silent else YES


def _to_start(asked: Wanted) -> str:
    """Name the nodes that will be started; the whole cluster where that is all of it, or nothing is to be done."""
    missing = () if asked.tools.recreate else asked.difference().missing
    if 0 < len(missing) < len(asked.plans):
        return wording.named(missing)
    return wording.whole(len(asked.plans))
