"""`ray up`, as steps: how far it came is read from what it prints, and what came of it is asked of
AWS and of Ray.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import yaml

from trainyard.backends.contract import Tools
from trainyard.backends.ec2 import desired, diagnosis, leash, naming, nodes, snapshot
from trainyard.backends.ec2 import location as locations
from trainyard.backends.ec2.desired import Site
from trainyard.backends.ec2.location import Location
from trainyard.backends.ec2.snapshot import Instance
from trainyard.backends.shared import leash as leashes
from trainyard.backends.shared import refusal
from trainyard.backends.shared.record import write_private
from trainyard.errors import OutsideError, RequestError, TrainyardError
from trainyard.seams.ray_autoscaler import RayUp
from trainyard.spec.cluster import ClusterSpec
from trainyard.steps import YES, Answer, Step, no, nothing
from trainyard.wording import counted

# Ray ends what takes too long by itself, but for the pull of an image.
RAY_UP_SECONDS = 7200.0
# An instance boots in a minute or two, and pulls its image.
NODES_SECONDS = 3600.0
ENDED_SECONDS = 300.0
_WARNING = re.compile(r"\bWARN(?:ING)?\b|Attempt failed")


class _RayStage(NamedTuple):
    """What `ray up` does, until it comes to the stage `before` of Ray's own; None: until its
    end.
    """

    id: str
    title: str
    before: int | None


# ray/autoscaler/_private/updater.py
STAGES: Sequence[_RayStage] = (
    _RayStage("launch-head", "Launch the head", 1),
    _RayStage("reach-head", "Reach the head by SSH", 2),
    _RayStage("copy-to-head", "Copy what the head needs", 4),
    _RayStage("host-ready", "Make its host ready", 6),
    _RayStage("set-up-head", "Set the head up", 7),
    _RayStage("start-ray", "Start Ray on the head", None),
)
AGAIN = "Run `ray up` again"


@dataclass
class Launch:
    """One way from what there is to a head that is as the file says. `run` is the `ray up` that is
    under way.
    """

    location: Location
    document: dict[str, Any]
    environment: str
    head: Instance | None
    ends_workers: bool = False
    cost: str = ""
    run: RayUp | None = None

    @cached_property
    def made_from(self) -> Mapping[str, str]:
        return desired.fingerprints(self.document, self.environment)

    def steps(self) -> list[Step]:
        """Return the steps: Ray's stages, and last of all what says that it came to its end; one if
        it did before.
        """
        if self.head is not None and is_made_from(self.head, self.made_from):
            return [Step("head", "The head is as the file says", self._is_written, nothing)]

        made: list[Step] = []
        for stage in STAGES:
            has_passed = partial(self._has_passed, stage.before)
            after = made[-1].id if made else None
            made.append(
                Step(
                    stage.id, stage.title, has_passed, nothing, deadline=RAY_UP_SECONDS, after=after
                )
            )

        title = made[0].title if self.head is None else AGAIN
        made[0] = replace(made[0], title=title, do=self._start, disruptive=self.ends_workers)
        title = "Write down what it was made from"
        return [*made, Step("record-head", title, self._is_written, self._write, after=made[-1].id)]

    def _start(self) -> None:
        locations.write_mounted(self.location, self.environment)
        file = self.location.state / "ray-cluster.yaml"
        write_private(file, yaml.safe_dump(self.document, sort_keys=False, width=120))
        # Without --no-restart Ray starts what `ray up` was killed before; a head that runs is left
        # alone either way.
        is_new = self.head is None or naming.MADE_FROM not in self.head.tags
        self.run = RayUp(file, self.location.log, self.location.environ, restart=is_new)

    def _has_passed(self, stage: int | None) -> Answer:
        """Say whether `ray up` came to a stage, to its end if that is None. Raises what ended it
        before.
        """
        if self.run is None:
            return no(self.cost if self.head is None else "it is not as the file says")
        lines = self.run.tail
        code = self.run.code
        if code not in (None, 0):
            raise self._error(self.run.of_stage)
        if code == 0 or (stage is not None and self.run.stage >= stage):
            return Answer(
                True, "; ".join(dict.fromkeys(filter(_WARNING.search, map(diagnosis.clean, lines))))
            )
        return no(diagnosis.last(lines))

    def _error(self, lines: Sequence[str]) -> TrainyardError:
        words = {"name": "the head", "user": self.location.section.user}
        types = self.document["available_node_types"]["head"]["node_config"]
        found = diagnosis.cause(lines, type_=types["InstanceType"], **words)
        found = found or diagnosis.failed_command(lines, name="the head")
        # Each zone's refusal, not the last one's.
        shown = diagnosis.with_lines(found, [line for line in lines if "Attempt failed" in line])
        return shown.to_error(where=f"all that `ray up` printed: {self.location.log}")

    def _is_written(self) -> Answer:
        head = snapshot.head(snapshot.of_cluster(self.location))
        if head is None:
            return no("there is no head")
        if is_made_from(head, self.made_from):
            return YES
        return no("the head is not as the file says")

    def _write(self) -> None:
        head = snapshot.head(snapshot.of_cluster(self.location))
        if head is None or head.status != naming.UP_TO_DATE:
            status = head.status if head else "there is no head"
            raise OutsideError(
                f"`ray up` has ended well, and the head is not set up ({status})",
                where=f"all that it printed: {self.location.log}",
                hint="Repeat the same command: it continues from here.",
            )
        self.location.aws.call(
            "ec2", "create_tags", Resources=[head.id], Tags=naming.pairs(self.made_from)
        )


def steps(spec: ClusterSpec, tools: Tools, location: Location, site: Site) -> list[Step]:
    """Return the steps from the instances that there are to nodes that answer; asks AWS for
    those.
    """
    found = snapshot.of_cluster(location)
    before = frozenset(instance.id for instance in found)
    document = desired.document(spec, site)
    environment = desired.environment(spec, site.image)
    surplus = _surplus(found, recreate=tools.recreate)
    staying = [each for each in found if each.exists and each not in surplus]
    outdated = _outdated(staying, document)
    head = snapshot.head(staying)
    launch = Launch(
        location, document, environment, head, bool(outdated) or _has_surplus(spec, staying)
    )
    launch.cost = "" if head else _cost(spec, location)
    made: list[Step] = []

    if head and _needs_another(head, launch.made_from):
        made.append(_replacing(launch, head))

    if surplus:
        title = f"Terminate {counted(len(surplus), 'instance')}"
        made.append(_termination(location, surplus, id="terminate-surplus", title=title))

    first, *others = launch.steps()
    ray_steps = [replace(first, after=made[-1].id if made else None), *others]
    last = ray_steps[-1].id

    if outdated:
        # The autoscaler launches others; it ends none by itself (v2/instance_manager,
        # disable_launch_config_check).
        title = f"End {counted(len(outdated), 'worker')} that the file describes otherwise"
        ray_steps.append(
            _termination(location, outdated, id="end-outdated", title=title, after=last)
        )

    held = leash.of(location)
    has_had = spec.leash or leashes.is_recorded(tools.state)
    return [
        *made,
        *ray_steps,
        *(leashes.steps(spec, tools, held, after=last) if has_had else ()),
        nodes.step(spec, location, before, seconds=NODES_SECONDS, after=last),
        *leashes.proof(spec, held, after=last),
    ]


def _replacing(launch: Launch, head: Instance) -> Step:
    error = RequestError(
        "the head in the cluster file is not the head that runs; to replace it ends "
        "everything on the cluster",
        where=_differences(launch, head),
        hint="If that is meant: trainyard cluster.up --recreate",
    )
    return refusal.of_head(error, title="Replace the head that runs")


def _cost(spec: ClusterSpec, location: Location) -> str:
    """Return what a new cluster consists of, and costs: `1 head m5.large, 0 to 3 gpu g5.xlarge; at
    most 3.11 USD`.
    """
    groups = desired.groups(spec).values()
    sizes = []
    for each in groups:
        sizes.append(str(each.most) if each.least == each.most else f"{each.least} to {each.most}")
    parts = [
        f"{size} {each.name} {each.instance_type}" for size, each in zip(sizes, groups, strict=True)
    ]
    types = [each.instance_type for each in groups for _ in range(each.most)]
    is_bound = any(each.spot or each.least < each.most for each in groups)
    price = nodes.cost(location.aws, location.aws.region, types, at_most=is_bound)
    end = "" if spec.leash else "no leash ends it"
    return "; ".join(filter(None, (", ".join(parts), price, end)))


def _differences(launch: Launch, head: Instance) -> str:
    """Return where a head differs from what it was made from, as far as that is kept here."""
    file = launch.location.state / "ray-cluster.yaml"
    mounted = launch.location.mounted / "environment"
    if file.exists() and mounted.exists():
        before = yaml.safe_load(file.read_text())
        environment = mounted.read_text()
        if (
            head.tags.get(naming.HEAD_FROM)
            == desired.fingerprints(before, environment)[naming.HEAD_FROM]
        ):
            parts = desired.differences(desired.of_head(before), desired.of_head(launch.document))
            lines = {*environment.splitlines()} ^ {*launch.environment.splitlines()}
            variables = sorted({line.removeprefix("export ").partition("=")[0] for line in lines})
            return (
                "; ".join([*parts, *(f"env.{name} differs" for name in variables)])
                or "ec2.tags differ"
            )

    return "what it was made from is not known here"


def _has_surplus(spec: ClusterSpec, found: Sequence[Instance]) -> bool:
    """Say whether the autoscaler will end workers that run, since they are more than the file
    allows.
    """
    running = Counter(each.group for each in found if each.runs and not each.is_head)
    return any(running[group.name] > group.most for group in spec.workers)


def _outdated(found: Sequence[Instance], document: Mapping[str, Any]) -> list[Instance]:
    """Return the workers that are not as the document describes their group."""
    workers = [each for each in found if not each.is_head]
    return [
        each
        for each in workers
        if each.tags.get(naming.NODE_FROM) != desired.node_from(document, each.group)
    ]


def is_made_from(head: Instance, made_from: Mapping[str, str]) -> bool:
    return head.runs and all(head.tags.get(key) == value for key, value in made_from.items())


def _needs_another(head: Instance, made_from: Mapping[str, str]) -> bool:
    """Say whether a head that once ran is another one than the file asks for; one that never did is
    not missed.
    """
    written = head.tags.get(naming.HEAD_FROM)
    return naming.CLUSTER not in head.tags or written not in (None, made_from[naming.HEAD_FROM])


def _surplus(found: Sequence[Instance], *, recreate: bool) -> list[Instance]:
    """Return what has to go first: all of it without a head, and what was stopped, which Ray would
    not find again.
    """
    existing = [instance for instance in found if instance.exists]
    has_head = any(instance.is_head and instance.runs for instance in existing)
    return [instance for instance in existing if recreate or not has_head or not instance.runs]


def _termination(
    location: Location,
    surplus: Sequence[Instance],
    *,
    id: str,
    title: str,
    after: str | None = None,
) -> Step:
    ids = [instance.id for instance in surplus]

    def are_gone() -> Answer:
        now = snapshot.of_cluster(location)
        left = []
        for instance in now:
            if instance.id in ids and instance.state != "terminated":
                left.append(instance.name)
        if left:
            return no(f"still there: {', '.join(left)}")
        return YES

    def terminate() -> None:
        location.aws.call("ec2", "terminate_instances", InstanceIds=ids)

    disruptive = any(instance.state == "running" for instance in surplus)
    return Step(
        id, title, are_gone, terminate, ENDED_SECONDS, every=1.0, after=after, disruptive=disruptive
    )
