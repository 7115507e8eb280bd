"""What `cluster.up` was asked for: the nodes, their image, and the engine that is to have them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainyard import paths, render
from trainyard.backends import ray_nodes, record, replace_head
from trainyard.backends.compose import found, host, image, names, view
from trainyard.backends.compose.change import changes
from trainyard.backends.compose.document import Document, Wish, document, token_fingerprint
from trainyard.backends.compose.found import Difference
from trainyard.backends.contract import Tools
from trainyard.backends.ray_nodes import NodePlan
from trainyard.errors import RequestError
from trainyard.images.types import PinnedImage
from trainyard.seams.docker import images as docker_images
from trainyard.seams.docker.containers import Container
from trainyard.seams.docker.engine import Engine
from trainyard.spec.cluster import ClusterSpec


@dataclass(frozen=True)
class Wanted:
    """A cluster as it should be."""

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
        return record.read_token(host.token_file(self.tools)) if self.spec.auth == "token" else None

    @property
    def token_fingerprint(self) -> str | None:
        """Return what tells this token from others, None without one."""
        token = self.token
        return token_fingerprint(token) if token else None

    def document(self) -> Document:
        """Return what Docker Compose gets."""
        fingerprint = self.token_fingerprint
        wish = Wish(self.spec, self.plans, self.image.reference, self.owner, fingerprint, self.simulated)
        return document(wish, self.template)

    @property
    def gpu_ids(self) -> tuple[str, ...]:
        """Return the real GPUs that the nodes get."""
        return tuple(gpu for plan in self.plans for gpu in plan.gpu_ids or ())

    def containers(self) -> dict[str, Container]:
        """Return what there is."""
        return found.nodes(self.engine, self.spec.name)

    def to_make(self) -> tuple[str, ...]:
        """Return the names of the nodes that need a new container."""
        there = {} if self.tools.recreate else self.containers()
        difference = found.compare(self.document().fingerprints, there)
        return tuple(name for name in difference.missing if name not in there or name in difference.unwanted)

    def difference(self) -> Difference:
        """Return what has to be done."""
        return found.compare(self.document().fingerprints, self.containers())


def wanted(spec: ClusterSpec, tools: Tools) -> Wanted:
    """Find out what the file means on its Docker host. Raises what stands in the way."""
    host.refuse_other_host(spec, tools)
    engine = host.connect(spec, tools)
    owner = host.owner(tools)
    found.refuse_foreign(found.everything(engine, spec.name), name=spec.name, owner=owner)
    names.refuse(names.in_the_way(engine, spec.name, [node.name for node in spec.nodes()]), engine=engine)
    room, simulated = host.room(spec, engine)
    return Wanted(
        spec=spec,
        tools=tools,
        engine=engine,
        plans=ray_nodes.node_plans(spec, room, simulated=simulated, machine="the Docker host"),
        image=image.pinned_for(spec, tools, engine),
        simulated=simulated,
        owner=owner,
        template=render.template(paths.shipped("compose"), "cluster.yaml.j2"),
    )


def unwanted(asked: Wanted) -> Mapping[str, Container]:
    """Return the nodes that have to go."""
    containers = asked.containers()
    if asked.tools.recreate:
        return containers
    gone = found.compare(asked.document().fingerprints, containers, lost=_lost(asked, containers)).unwanted
    return {name: containers[name] for name in gone}


def refusal(asked: Wanted, surplus: Mapping[str, Container]) -> RequestError | None:
    """Return why the running head may not go: all runs end with it, so that it must be asked for."""
    head = surplus.get("head")
    if head is None or asked.tools.recreate or head.state != "running" or _never_ran(asked, head):
        return None
    return replace_head.refusal(what_differs(asked, head))


def what_differs(asked: Wanted, head: Container) -> list[str]:
    """Say in what the head in the cluster file is not the one that runs."""
    image = docker_images.inspect(asked.engine, head.image_id)
    service = render.parse(asked.document().text)["services"]["head"]
    return changes(service, head, image.env if image else {})


def _never_ran(asked: Wanted, head: Container) -> bool:
    """Say whether a head only ends and is started again by Docker: nothing runs on it, then."""
    if head.restarts == 0:
        return False
    return view.is_silent(asked.engine, {"head": head}, asked.token)


def _lost(asked: Wanted, containers: Mapping[str, Container]) -> frozenset[str]:
    """Return the workers whose head was started again: Ray lets them wait a minute before they end."""
    older = found.older_than_head(containers)
    if not older:
        return older
    answering, _ = view.answer(asked.engine, containers, asked.token)
    return older - answering
