"""What `cluster.up` was asked for: the nodes, their image, and the engine that is to have them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainyard import paths, render
from trainyard.backends import plans, private_files
from trainyard.backends.compose import found, host, image, labels, view
from trainyard.backends.compose.document import Document, Wish, document, token_fingerprint
from trainyard.backends.compose.found import Difference
from trainyard.backends.contract import Tools
from trainyard.backends.plans import NodePlan
from trainyard.errors import RequestError
from trainyard.images.pinned import PinnedImage
from trainyard.seams.docker_containers import Container
from trainyard.seams.docker_engine import Engine
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
        return private_files.read_token(host.token_file(self.tools)) if self.spec.auth == "token" else None

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

    def difference(self) -> Difference:
        """Return what has to be done."""
        return found.compare(self.document().fingerprints, self.containers())


def wanted(spec: ClusterSpec, tools: Tools) -> Wanted:
    """Find out what the file means on its Docker host. Raises what stands in the way."""
    host.refuse_other_host(spec, tools)
    engine = host.connect(spec, tools)
    owner = host.owner(tools)
    found.refuse_foreign(found.everything(engine, spec.name), name=spec.name, owner=owner)
    room, simulated = host.room(spec, engine)
    return Wanted(
        spec=spec,
        tools=tools,
        engine=engine,
        plans=plans.node_plans(spec, room, simulated=simulated, machine="the Docker host"),
        image=image.pinned_for(spec, tools, engine),
        simulated=simulated,
        owner=owner,
        template=render.template(paths.shipped("compose"), "cluster.yaml.j2"),
    )


def unwanted(asked: Wanted) -> Mapping[str, Container]:
    """Return the nodes that have to go; refuse to end a running head unless asked to, as all runs end with it."""
    containers = asked.containers()
    if asked.tools.recreate:
        return containers
    names = found.compare(asked.document().fingerprints, containers, lost=_lost(asked, containers)).unwanted
    if "head" in names and containers["head"].state in found.RUNNING:
        raise RequestError(
            "the head in the cluster file is not the head that runs; to replace it ends everything on the cluster",
            where=why_another(containers["head"].labels, asked.image.reference, asked.token_fingerprint)
            or (str(asked.tools.source) if asked.tools.source else None),
            hint=f"If that is meant: invoke cluster.up{asked.tools.flag} --recreate",
        )
    return {name: containers[name] for name in names}


def why_another(head: Mapping[str, str], reference: str, fingerprint: str | None) -> str | None:
    """Return why a running head does not fit, if it is nothing that stands in the cluster file."""
    if head.get(labels.TOKEN, "") != (fingerprint or ""):
        return "its token: the one that was made for it is not known here"
    if head.get(labels.IMAGE) != reference:
        return f"its image: {head.get(labels.IMAGE)} runs, {reference} is wanted"
    return None


def _lost(asked: Wanted, containers: Mapping[str, Container]) -> frozenset[str]:
    """Return the workers whose head was started again: Ray lets them wait a minute before they end."""
    older = found.older_than_head(containers)
    if not older:
        return older
    answering, _ = view.answer(asked.engine, containers, asked.token)
    return older - answering
