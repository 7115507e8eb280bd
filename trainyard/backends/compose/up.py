"""The steps that make a cluster of containers match its file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from trainyard.backends import node_steps, ray_nodes, replace_head
from trainyard.backends.compose import desired, diagnosis, image, naming, preflight, record, snapshot
from trainyard.backends.compose.desired import TOKEN_VARIABLE, Desired, Document
from trainyard.backends.compose.status import answer, never_ran
from trainyard.backends.contract import Tools
from trainyard.backends.node_steps import Difference, Nodes
from trainyard.backends.ray_nodes import NodePlan
from trainyard.backends.record import make_token
from trainyard.errors import OutsideError, RequestError
from trainyard.images.types import PinnedImage
from trainyard.seams.docker import compose as docker_compose
from trainyard.seams.docker import containers as docker_containers
from trainyard.seams.docker import images as docker_images
from trainyard.seams.docker.containers import Container
from trainyard.seams.docker.engine import Engine
from trainyard.spec.cluster import ClusterSpec
from trainyard.steps import YES, Answer, Stage, Step, no, nothing

FIXED = (
    "One Docker host does not get larger: give the group a fixed `count`. "
    "Growing needs a backend that can ask for machines (Kubernetes, EC2)."
)


@dataclass(frozen=True)
class _Up:
    """What `cluster.up` works with: the engine that is to have the cluster, its nodes and their image."""

    spec: ClusterSpec
    tools: Tools
    engine: Engine
    plans: tuple[NodePlan, ...]
    image: PinnedImage
    owner: str

    @property
    def token(self) -> str | None:
        return record.token(self.tools) if self.spec.auth == "token" else None

    def document(self) -> Document:
        fingerprint = desired.token_fingerprint(self.token) if self.token else None
        return desired.document(Desired(self.spec, self.plans, self.image.reference, self.owner, fingerprint))

    def containers(self) -> dict[str, Container]:
        return snapshot.nodes(self.engine, self.spec.name)

    def difference(self) -> Difference:
        return snapshot.compare(self.document().fingerprints, self.containers())

    def makes_head(self) -> bool:
        """Say whether the head needs a new container, and not only to be started."""
        return self.tools.recreate or "head" not in self.containers() or "head" in self.difference().surplus


def up_steps(spec: ClusterSpec, tools: Tools) -> list[Stage]:
    """Return the steps that make the cluster match its file; which they are, its Docker host knows."""
    ray_nodes.refuse_growing_groups(spec, hint=FIXED)
    return [Stage("Look at the Docker host", expand=lambda: _steps(_look(spec, tools)))]


def _look(spec: ClusterSpec, tools: Tools) -> _Up:
    """Find out what the file means on its Docker host. Raises what stands in the way."""
    record.refuse_other_host(spec, tools)
    engine = record.connect(spec, tools)
    owner = record.owner(tools)
    snapshot.refuse_foreign(engine, spec.name, owner=owner)
    snapshot.refuse_in_the_way(engine, spec.name, [node.name for node in spec.nodes()])
    gpu_ids, simulated = preflight.gpus(spec, engine)
    plans = preflight.node_plans(spec, engine, gpu_ids, simulated=simulated)
    head = None if tools.recreate else snapshot.nodes(engine, spec.name).get("head")
    running = head.labels.get(naming.IMAGE) if head else None
    return _Up(spec, tools, engine, plans, image.pinned_for(spec, tools, engine, running=running), owner)


def _steps(up: _Up) -> list[Step]:
    surplus = _surplus(up)
    refused = _refusal(up, surplus)
    pull = image.pull_step(up.engine, up.image)
    recreate = up.tools.recreate
    starting = [plan for plan in up.plans if recreate or plan.name in up.difference().missing]
    noted = "Make the cluster's token" if up.spec.auth == "token" else "Write down where the cluster is"
    try_image = partial(preflight.probe_image, up.engine, up.image, up.spec)
    try_gpus = partial(preflight.probe_gpus, up.engine, up.image.reference, _gpu_ids(up.plans))
    nodes = Nodes(
        up.plans,
        made=lambda: {name: container.id for name, container in up.containers().items()},
        missing=lambda: up.difference().missing,
        start=lambda: _start(up),
        answer=lambda: _answer(up),
    )
    return [
        *([replace_head.step(refused)] if refused else []),
        Step("Check the Docker host", done=lambda: _check(up), do=nothing),
        pull,
        *([_probe("Try the image and the mounts", try_image, pull)] if up.makes_head() else []),
        # Nodes that have their GPUs are proof enough.
        *([_probe("Give the GPUs to a container", try_gpus, pull)] if _gpu_ids(starting) else []),
        Step(noted, done=lambda: _is_recorded(up), do=lambda: _record(up)),
        *node_steps.steps(
            nodes,
            {name: container.id for name, container in surplus.items()},
            remove=lambda: _remove(up.engine, surplus),
            runs=any(container.state in snapshot.RUNNING for container in surplus.values()),
            recreate=recreate,
        ),
    ]


def _surplus(up: _Up) -> Mapping[str, Container]:
    """Return the nodes that have to go; also workers whose head was started again: Ray lets them wait a minute."""
    containers = up.containers()
    if up.tools.recreate:
        return containers
    lost = snapshot.older_than_head(containers)
    if lost:
        lost -= answer(up.engine, containers, up.token)[0]
    gone = snapshot.compare(up.document().fingerprints, containers, lost=lost).surplus
    return {name: containers[name] for name in gone}


def _refusal(up: _Up, surplus: Mapping[str, Container]) -> RequestError | None:
    """Return why the running head may not go: all runs end with it, so that it must be asked for."""
    head = surplus.get("head")
    if head is None or up.tools.recreate or head.state != "running" or never_ran(up.engine, head, up.token):
        return None
    made = docker_images.inspect(up.engine, head.image_id)
    return replace_head.refusal(desired.changes(up.document().services["head"], head, made.env if made else {}))


def _check(up: _Up) -> Answer:
    if not up.tools.recreate and not up.difference().missing:
        return YES
    if up.makes_head():
        preflight.refuse_taken_port(up.engine, up.spec)
    docker_compose.require(up.engine)
    return Answer(True, "; ".join(preflight.warnings(up.engine, up.plans, up.spec.compose.shm_size)))


def _probe(title: str, probe: Callable[[], None], pull: Step) -> Step:
    """Return a step that holds once it was done in this run."""
    tried: list[bool] = []

    def do() -> None:
        probe()
        tried.append(True)

    return Step(f"{title}, for a moment", done=lambda: YES if tried else no("not tried yet"), do=do, after=pull.title)


def _gpu_ids(plans: Iterable[NodePlan]) -> tuple[str, ...]:
    return tuple(gpu for plan in plans for gpu in plan.gpu_ids or ())


def _is_recorded(up: _Up) -> Answer:
    if record.read(up.tools) is None:
        return no("nothing is written down")
    return YES if up.token or up.spec.auth == "none" else no("there is none")


def _record(up: _Up) -> None:
    record.write(up.tools, name=up.spec.name, docker=up.engine.address, owner=up.owner)
    if up.spec.auth == "token" and up.token is None:
        make_token(record.token_file(up.tools))


def _remove(engine: Engine, surplus: Mapping[str, Container]) -> None:
    for container in surplus.values():
        docker_containers.remove(engine, container.id)


def _start(up: _Up) -> None:
    """Make every missing container, let everybody in them write to the outputs, then start them."""
    secrets = {TOKEN_VARIABLE: up.token} if up.token else {}
    project = docker_compose.Project(up.engine, naming.project(up.spec.name), up.document().text, secrets=secrets)
    with diagnosis.explained(image=up.image.name, error=OutsideError):
        docker_compose.create(project)
        # The new volume belongs to root: it is opened before its first head runs, so that no running one lacks it.
        head = up.containers().get("head")
        if head is not None and head.state not in snapshot.RUNNING:
            docker_containers.open_directory(up.engine, head.id, up.spec.compose.outputs)
        docker_compose.up(project)


def _answer(up: _Up) -> tuple[frozenset[str], str]:
    containers = up.containers()
    diagnosis.refuse_dead(up.engine, containers)
    return answer(up.engine, containers, up.token)
