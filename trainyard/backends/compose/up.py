"""The steps that make a cluster of containers match its file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from trainyard import paths, render
from trainyard.backends import nvidia, plans, private_files, words
from trainyard.backends.compose import found, host, image, labels, view
from trainyard.backends.compose.document import TOKEN_VARIABLE, Document, Wish, document, token_fingerprint
from trainyard.backends.compose.found import Difference
from trainyard.backends.contract import Tools
from trainyard.backends.plans import NodePlan
from trainyard.errors import OutsideError, RequestError
from trainyard.images.pinned import PinnedImage
from trainyard.seams import docker_compose, docker_containers
from trainyard.seams.docker_containers import Container
from trainyard.seams.docker_engine import Engine
from trainyard.spec.cluster import ClusterSpec
from trainyard.steps import YES, Answer, Step, no

# A head and two workers took 6 s on 2 idle cores; a busy machine may need many times that.
READY_SECONDS = 300.0
CHECK = "Check the Docker host"


@dataclass(frozen=True)
class _Wanted:
    """What `cluster.up` was asked for, and the engine that is to have it."""

    spec: ClusterSpec
    tools: Tools
    engine: Engine
    plans: tuple[NodePlan, ...]
    image: PinnedImage
    simulated: bool
    owner: str
    template: str

    @property
    def token(self) -> str | None:
        """Return the token, None if there is none (yet)."""
        return private_files.read_token(host.token_file(self.tools)) if self.spec.auth == "token" else None

    def document(self) -> Document:
        """Return what Docker Compose gets."""
        token = self.token
        fingerprint = token_fingerprint(token) if token else None
        wish = Wish(self.spec, self.plans, self.image.reference, self.owner, fingerprint, self.simulated)
        return document(wish, self.template)

    def containers(self) -> dict[str, Container]:
        """Return what there is."""
        return found.nodes(self.engine, self.spec.name)

    def difference(self) -> Difference:
        """Return what has to be done."""
        return found.compare(self.document().fingerprints, self.containers())


def up_steps(spec: ClusterSpec, tools: Tools) -> list[Step]:
    """Return the steps that make the cluster match its file."""
    plans.refuse_growing_groups(
        spec,
        hint="One Docker host does not get larger: give the group a fixed `count`. Growing needs a backend that can "
        "ask for machines (Kubernetes, EC2).",
    )
    wanted = _wanted(spec, tools)
    unwanted = _unwanted(wanted)
    steps = [
        Step(CHECK, done=lambda: _check(wanted), do=_nothing),
        image.step(wanted.engine, wanted.image),
        Step(_token_title(spec), done=lambda: _is_recorded(wanted), do=lambda: _record(wanted)),
    ]
    remove = f"Remove {words.named(tuple(unwanted))}"
    if unwanted:
        steps.append(Step(remove, done=lambda: _are_gone(wanted, unwanted), do=lambda: _remove(wanted, unwanted)))
    start = f"Start {_to_start(wanted)}"
    after = remove if unwanted else None
    steps.append(Step(start, done=lambda: _are_started(wanted), do=lambda: _start(wanted), after=after))
    answer = words.all_answer(len(wanted.plans))
    steps.append(Step(answer, done=lambda: _answer(wanted), do=_nothing, deadline=READY_SECONDS, after=start))
    return steps


def _wanted(spec: ClusterSpec, tools: Tools) -> _Wanted:
    host.refuse_other_host(spec, tools)
    engine = host.connect(spec, tools)
    owner = host.owner(tools)
    found.refuse_foreign(found.everything(engine, spec.name), name=spec.name, owner=owner)
    room, simulated = host.room(spec, engine)
    return _Wanted(
        spec=spec,
        tools=tools,
        engine=engine,
        plans=plans.node_plans(spec, room, simulated=simulated, machine="the Docker host"),
        image=image.pinned_for(spec, tools, engine),
        simulated=simulated,
        owner=owner,
        template=render.template(paths.shipped("compose"), "cluster.yaml.j2"),
    )


def _unwanted(wanted: _Wanted) -> Mapping[str, Container]:
    """Return the nodes that have to go; refuse to end a running head unless asked to, as all runs end with it."""
    containers = wanted.containers()
    if wanted.tools.recreate:
        return containers
    lost = _lost(wanted, containers)
    unwanted = found.compare(wanted.document().fingerprints, containers, lost=lost).unwanted
    if "head" in unwanted and containers["head"].state in found.RUNNING:
        raise RequestError(
            "the head in the cluster file is not the head that runs; to replace it ends everything on the cluster",
            where=str(wanted.tools.source) if wanted.tools.source else None,
            hint=f"If that is meant: invoke cluster.up{wanted.tools.flag} --recreate",
        )
    return {name: containers[name] for name in unwanted}


def _lost(wanted: _Wanted, containers: Mapping[str, Container]) -> frozenset[str]:
    """Return the workers whose head was started again: Ray lets them wait a minute before they end."""
    older = found.older_than_head(containers)
    if not older:
        return older
    answering, _ = view.answer(wanted.engine, containers, wanted.token)
    return older - answering


def _check(wanted: _Wanted) -> Answer:
    if not wanted.difference().missing:
        return YES
    docker_compose.require(wanted.engine)
    return Answer(True, "; ".join(host.warnings(wanted.engine, wanted.plans, wanted.spec.compose.shm_size)))


def _nothing() -> None:
    """Change nothing: such a step only asks, or waits for what an earlier one began."""


def _token_title(spec: ClusterSpec) -> str:
    return "Make the cluster's token" if spec.auth == "token" else "Write down where the cluster is"


def _is_recorded(wanted: _Wanted) -> Answer:
    if host.read_record(wanted.tools) is None:
        return no("nothing is written down")
    return YES if wanted.token or wanted.spec.auth == "none" else no("there is none")


def _record(wanted: _Wanted) -> None:
    host.write_record(wanted.tools, host.Record(wanted.spec.name, wanted.engine.address, wanted.owner))
    if wanted.spec.auth == "token" and wanted.token is None:
        private_files.make_token(host.token_file(wanted.tools))


def _are_gone(wanted: _Wanted, unwanted: Mapping[str, Container]) -> Answer:
    now = {one.id for one in wanted.containers().values()}
    left = [name for name, one in unwanted.items() if one.id in now]
    return no(f"still there: {', '.join(left)}") if left else YES


def _remove(wanted: _Wanted, unwanted: Mapping[str, Container]) -> None:
    for one in unwanted.values():
        docker_containers.remove(wanted.engine, one.id)


def _are_started(wanted: _Wanted) -> Answer:
    missing = wanted.difference().missing
    return no(f"not there: {', '.join(missing)}") if missing else YES


def _start(wanted: _Wanted) -> None:
    """Make every missing container, let everybody in them write to the outputs, then start them."""
    real = tuple(gpu for plan in wanted.plans for gpu in plan.gpu_ids or ())
    if real:
        nvidia.prove(wanted.engine, wanted.image.reference, real)
    secrets = {TOKEN_VARIABLE: wanted.token} if wanted.token else {}
    project = docker_compose.Project(
        wanted.engine, labels.project(wanted.spec.name), wanted.document().text, secrets=secrets
    )
    _explained(lambda: docker_compose.create(project))
    head = wanted.containers().get("head")
    if head is not None and head.state not in found.RUNNING:
        docker_containers.open_directory(wanted.engine, head.id, wanted.spec.compose.outputs)
    _explained(lambda: docker_compose.up(project))


# What Docker says, and what helps.
_CAUSES = (
    ("port is already allocated", "Leave out compose.dashboard_port: then a free port is taken."),
    ("address already in use", "Leave out compose.dashboard_port: then a free port is taken."),
    ("executable file not found", "There is no `ray` on the image's PATH: invoke image.lint"),
    ("bind source path does not exist", "compose.mounts names directories of the Docker host; make them there first."),
    ("could not find an available", "Docker's address pools are used up; remove networks: docker network prune"),
)


def _explained(do: Callable[[], None]) -> None:
    """Run a command of Compose; add what helps to the errors that are known."""
    try:
        do()
    except OutsideError as error:
        hint = next((fix for words_, fix in _CAUSES if words_ in str(error.where)), None)
        raise OutsideError(error.what, where=error.where, hint=hint) from error


def _answer(wanted: _Wanted) -> Answer:
    containers = wanted.containers()
    view.refuse_dead(wanted.engine, containers)
    answering, seen = view.answer(wanted.engine, containers, wanted.token)
    silent = [plan.name for plan in wanted.plans if plan.name not in answering]
    return no(seen or f"waiting for {', '.join(silent)}") if silent else YES


def _to_start(wanted: _Wanted) -> str:
    """Name the nodes that will be started; the whole cluster where that is all of it, or nothing is to be done."""
    missing = () if wanted.tools.recreate else wanted.difference().missing
    if 0 < len(missing) < len(wanted.plans):
        return words.named(missing)
    return words.whole(len(wanted.plans))
