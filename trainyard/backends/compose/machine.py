"""A Docker host as the host of a cluster's nodes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from trainyard.backends import contract
from trainyard.backends.compose import desired, diagnosis, leash, location, naming
from trainyard.backends.contract import LeashStatus
from trainyard.backends.shared import ray_nodes
from trainyard.backends.shared.leash import Leash
from trainyard.backends.shared.logs import TAIL_LINES, LogFile, ray_files
from trainyard.backends.shared.ray_nodes import Capacity, NodePlan, fingerprint
from trainyard.backends.shared.single_host import Machine, ObservedNode
from trainyard.errors import NotReadyError, OutsideError, TrainyardError
from trainyard.images.resolve import PinnedImage
from trainyard.seams import nvidia
from trainyard.seams.docker import cli
from trainyard.seams.docker import containers as docker_containers
from trainyard.seams.docker import images as docker_images
from trainyard.seams.docker.containers import Container
from trainyard.seams.docker.engine import Engine
from trainyard.seams.forwarding import LOOPBACK
from trainyard.seams.ssh import connection, forward
from trainyard.seams.threads import side_by_side

# The file name of a container's own output in the logs.
CONTAINER = "container"


@dataclass(frozen=True)
class DockerHost(Machine):
    """A Docker host: a node is a container.

    `image` is the head's desired image; `images` has those of groups that use
    another. If `image` is None, as for a status, each group's running image is
    the desired one.
    """

    engine: Engine
    image: PinnedImage | None = None
    images: Mapping[str, PinnedImage] = field(default_factory=dict)

    @property
    def host(self) -> str:
        if self.engine.is_here:
            return LOOPBACK
        return self.engine.host

    @property
    def tunnel(self) -> str | None:
        return self.engine.ssh

    @cached_property
    def base_plans(self) -> tuple[NodePlan, ...]:
        """Ask the engine; return all plans, still without image and token."""
        facts = self.engine.info()
        section = self.spec.compose
        gpu_ids: tuple[str, ...] = ()
        # nvidia-smi may take seconds.
        if any(node.gpus for node in self.spec.nodes()):
            gpu_ids = nvidia.gpu_ids(self.engine)

        # Ray's own share of a machine's memory is 70 %.
        capacity = Capacity(int(facts["NCPU"]), int(facts["MemTotal"]) * 7 // 10, gpu_ids)
        host = f"the Docker host ({self.engine.host})"
        plans = ray_nodes.node_plans(
            self.spec, capacity, may_simulate=section.simulated_gpus, machine=host
        )

        return tuple(desired.in_a_container(plan, self.spec) for plan in plans)

    @property
    def plans(self) -> tuple[NodePlan, ...]:
        """Return the plan of every node, with image and token.

        The plans are not cached: the token may be made between two calls.
        """
        token = "none"  # noqa: S105
        if self.token and self.spec.auth == "token":
            token = fingerprint(self.token)
        image_of = self._image_of()
        plans = []
        for plan in self.base_plans:
            others = {**plan.others, "image": image_of(plan.group), "token": token}
            plans.append(replace(plan, others=others))
        return tuple(plans)

    def _image_of(self) -> Callable[[str], str]:
        image = self.image
        if image is not None:
            return lambda group: self.images.get(group, image).reference
        # The first node is the head, so a group without nodes gets the head's image.
        running: dict[str, str] = {}
        for node in self.nodes().values():
            running.setdefault(node.plan.get("group", ""), node.plan.get("image", ""))
        first = next(iter(running.values()), "")
        return lambda group: running.get(group, first)

    def containers(self) -> dict[str, Container]:
        """Return the containers by node name, the head first."""
        listed = docker_containers.labelled(
            self.engine, naming.of_cluster(self.spec.name), naming.NODE
        )
        named = {container.labels[naming.NODE]: container for container in listed}
        return dict(sorted(named.items(), key=lambda item: (item[0] != "head", item[0])))

    def nodes(self) -> dict[str, ObservedNode]:
        return {name: _observed(container) for name, container in self.containers().items()}

    def address(self) -> str | None:
        """Return the dashboard's URL on this machine; None if no head runs.

        For an engine over SSH, the URL needs this process, which holds the
        tunnel.
        """
        port = self._published(desired.DASHBOARD_PORT)
        if port is None:
            return None
        return f"http://{LOOPBACK}:{port}"

    def ray_address(self) -> str:
        """Return the address for Ray Client, with the tunnel of `address`."""
        if self.address() is None:
            raise contract.not_up(self.spec.name)
        port = self._published(ray_nodes.client_port(self.spec.head))
        if port is None:
            what = f"the head of cluster {self.spec.name} publishes no port for Ray Client"
            hint = "The cluster was made with another port: trainyard cluster.up --recreate"
            raise NotReadyError(what, hint=hint)
        return f"ray://{LOOPBACK}:{port}"

    def _published(self, inside: int) -> int | None:
        """Return the local port that leads to port `inside` of the head.

        None if the head does not run, or does not publish that port.
        """
        head = self.containers().get("head")
        if head is None:
            return None
        ports = [port.outside for port in head.ports if port.inside == inside]
        if not ports:
            return None
        ssh = self.engine.ssh
        if ssh is None:
            return ports[0]
        return forward.local_port(connection.connect(ssh, self.engine.environ), ports[0])

    def log_files(self, node: str) -> Iterator[LogFile]:
        """Yield each container's own output, then Ray's log files."""
        for name, container in self.containers().items():
            if node not in ("", name):
                continue
            lines = docker_containers.tail(self.engine, container.id, lines=TAIL_LINES)
            yield LogFile(container.id, name, CONTAINER, list(lines))
        address = self.address()
        if address:
            # If Ray does not answer, the containers' own output says why.
            with suppress(OutsideError):
                yield from ray_files(address, self.token, node)

    def start(self, missing: Sequence[str]) -> None:
        """Make and start every missing container.

        Before a missing head starts, all users in containers get access to the
        outputs volume.
        """
        cli.require(self.engine, "compose", hint=cli.COMPOSE)
        location.write(self.site, self.engine)
        self.make_token()
        spec = self.spec
        token = self.token

        document = desired.document(
            spec,
            self.plans,
            location.owner(self.site),
            logging=docker_containers.bounded_log(self.engine),
            of_root=self._of_root(),
        )

        secrets = {}
        if token and spec.auth == "token":
            secrets = {desired.TOKEN_VARIABLE: token}

        compose = partial(
            cli.compose, self.engine, naming.project(spec.name), document, secrets=secrets
        )

        image = ""
        if self.image:
            image = self.image.name
        with diagnosis.explained(image=image):
            compose("create")
            # A new volume belongs to root, and programs of the head must be able to write there.
            if "head" in missing:
                docker_containers.open_directory(
                    self.engine, naming.container(spec.name, "head"), spec.compose.outputs
                )
            compose("up", "--detach")

    def _of_root(self) -> frozenset[str]:
        """Return the images whose user is root or that this host lacks."""
        found = set()
        for reference in {plan.others["image"] for plan in self.plans}:
            facts = docker_images.inspect(self.engine, reference)
            if facts is None or facts.is_root:
                found.add(reference)
        return frozenset(found)

    def remove(self, names: Iterable[str]) -> None:
        """Remove these nodes' containers.

        If the head stays, the containers are stopped first, so that Ray
        notices.
        """
        containers = {name: naming.container(self.spec.name, name) for name in names}
        if "head" not in containers:
            # A raylet needs seconds to end, so all containers stop in parallel.
            side_by_side(partial(docker_containers.stop, self.engine), containers.values())
        for container in containers.values():
            docker_containers.remove(self.engine, container)

    @property
    def leash(self) -> Leash:
        """Return the functions of the leash, a container next to the nodes."""
        engine = self.engine
        name = self.spec.name

        def start(status: LeashStatus) -> None:
            owner = location.owner(self.site)
            token = None
            if self.spec.auth == "token":
                token = self.token
            leash.start(
                engine,
                name,
                status,
                image=self.containers()["head"].image,
                owner=owner,
                token=token,
            )

        return Leash(
            lambda: leash.observe(engine, name),
            self.made,
            start,
            lambda: leash.remove(engine, name),
        )

    def end_reason(self, name: str) -> TrainyardError:
        return diagnosis.end_reason(self.engine, name, self.containers()[name])


def _observed(container: Container) -> ObservedNode:
    return ObservedNode(
        plan=json.loads(container.labels.get(naming.PLAN, "{}")),
        identity=container.id,
        runs=diagnosis.runs(container),
        has_run=container.state == "running" and container.health != "starting",
        started=leash.moment(container.started),
        made=leash.moment(container.created),
        detail=diagnosis.describe(container),
    )
