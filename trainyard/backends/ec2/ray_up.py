"""`ray up` as steps; AWS and Ray, not its output, say whether it succeeded."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import yaml

from trainyard.backends.contract import Site
from trainyard.backends.ec2 import desired, diagnosis, leash, naming, nodes, snapshot
from trainyard.backends.ec2 import location as locations
from trainyard.backends.ec2.desired import Inputs
from trainyard.backends.ec2.location import Location
from trainyard.backends.ec2.snapshot import Instance
from trainyard.backends.shared import leash as leashes
from trainyard.backends.shared import refusal
from trainyard.backends.shared.record import write_private
from trainyard.errors import OutsideError, TrainyardError
from trainyard.seams.ray_autoscaler import RayUp
from trainyard.spec.cluster import ClusterSpec
from trainyard.steps import YES, Answer, Step, no, nothing
from trainyard.wording import counted

# Ray limits the time of everything but the pull of an image.
RAY_UP_SECONDS = 7200.0
# An instance boots in one or two minutes; the pull of its image takes longer.
NODES_SECONDS = 3600.0
ENDED_SECONDS = 300.0
_WARNING = re.compile(r"\bWARN(?:ING)?\b|Attempt failed")
# The parts of `ray up`: id, title, and the number of Ray's stage after the part; None for the last
# part (ray/autoscaler/_private/updater.py).
STAGES: Sequence[tuple[str, str, int | None]] = (
    ("launch-head", "Launch the head", 1),
    ("reach-head", "Reach the head by SSH", 2),
    ("copy-to-head", "Copy what the head needs", 4),
    ("host-ready", "Make its host ready", 6),
    ("set-up-head", "Set the head up", 7),
    ("start-ray", "Start Ray on the head", None),
)
AGAIN = "Run `ray up` again"


@dataclass
class Launch:
    """One call of `ray up`, which makes a head that matches the file.

    `run` is the process, once started. `head` is the existing head.
    `ends_workers`: the autoscaler will terminate workers that are outdated or
    too many.
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
        """Return a step for each part of `ray up`, and one that tags the head.

        For a head whose tags match the file, returns one step without action.
        """
        if self.head is not None and is_made_from(self.head, self.made_from):
            return [Step("head", "The head matches the file", self._is_written, nothing)]

        steps: list[Step] = []
        after = None
        for id, title, before in STAGES:
            has_passed = partial(self._has_passed, before)
            step = Step(id, title, has_passed, nothing, deadline=RAY_UP_SECONDS, after=after)
            steps.append(step)
            after = id

        title = steps[0].title if self.head is None else AGAIN
        steps[0] = replace(steps[0], title=title, do=self._start, disruptive=self.ends_workers)
        title = "Tag the head with its fingerprints"
        steps.append(Step("record-head", title, self._is_written, self._write, after=after))
        return steps

    def _start(self) -> None:
        locations.write_mounted(self.location, self.environment)
        file = self.location.state / "ray-cluster.yaml"
        write_private(file, yaml.safe_dump(self.document, sort_keys=False, width=120))
        # A head without this tag may be from a killed `ray up`, and needs a restart to start Ray.
        # Ray runs on a tagged head, and is left alone.
        is_new = self.head is None or naming.MADE_FROM not in self.head.tags
        self.run = RayUp(file, self.location.log, self.location.environ, restart=is_new)

    def _has_passed(self, stage: int | None) -> Answer:
        """Say whether `ray up` has reached a stage; None means the end.

        Raises the cause of a failure.
        """
        if self.run is None:
            return no(self.cost if self.head is None else "it does not match the file")

        lines = self.run.tail
        code = self.run.code
        if code not in (None, 0):
            raise self._error(self.run.of_stage)
        if code == 0 or (stage is not None and self.run.stage >= stage):
            warnings = filter(_WARNING.search, map(diagnosis.clean, lines))
            return Answer(True, "; ".join(dict.fromkeys(warnings)))
        return no(diagnosis.last(lines))

    def _error(self, lines: Sequence[str]) -> TrainyardError:
        config = self.document["available_node_types"]["head"]["node_config"]
        cause = diagnosis.cause(
            lines, name="the head", type_=config["InstanceType"], user=self.location.section.user
        )
        cause = cause or diagnosis.failed_command(lines, name="the head")
        # The error lists the rejection of each zone, not only the last one.
        cause = diagnosis.with_lines(cause, [line for line in lines if "Attempt failed" in line])
        return cause.to_error(where=f"all that `ray up` printed: {self.location.log}")

    def _is_written(self) -> Answer:
        head = snapshot.head(snapshot.of_cluster(self.location))
        if head is None:
            return no("there is no head")
        if is_made_from(head, self.made_from):
            return YES
        return no("the head does not match the file")

    def _write(self) -> None:
        head = snapshot.head(snapshot.of_cluster(self.location))
        if head is None or head.status != naming.UP_TO_DATE:
            status = head.status if head else "there is no head"
            raise OutsideError(
                f"`ray up` has succeeded, but the head is not set up ({status})",
                where=f"all that `ray up` printed: {self.location.log}",
                hint="Repeat the same command: it continues from here.",
            )
        self.location.aws.call(
            "ec2", "create_tags", Resources=[head.id], Tags=naming.pairs(self.made_from)
        )


def steps(spec: ClusterSpec, site: Site, location: Location, inputs: Inputs) -> list[Step]:
    """Ask AWS for the instances; return steps that make them match the file.

    The steps end surplus and outdated instances, run `ray up`, set the leash,
    and wait for nodes.
    """
    found = snapshot.of_cluster(location)
    before = frozenset(instance.id for instance in found)
    document = desired.document(spec, inputs)
    environment = desired.environment(spec, inputs.image)
    surplus = _surplus(found, recreate=site.wishes.recreate)
    staying = [each for each in found if each.exists and each not in surplus]
    outdated = _outdated(staying, document)
    head = snapshot.head(staying)
    ends_workers = bool(outdated) or _has_surplus(spec, staying)
    launch = Launch(location, document, environment, head, ends_workers)
    launch.cost = "" if head else _cost(spec, location)

    steps: list[Step] = []
    if head and _needs_another(head, launch.made_from):
        steps.append(refusal.of_another_head(_differences(launch, head)))
    if surplus:
        title = f"Terminate {counted(len(surplus), 'instance')}"
        steps.append(_termination(location, surplus, id="terminate-surplus", title=title))

    first, *later = launch.steps()
    steps += [replace(first, after=steps[-1].id if steps else None), *later]
    last = steps[-1].id

    if outdated:
        # The autoscaler replaces ended workers, but does not end outdated workers by itself
        # (v2/instance_manager, disable_launch_config_check).
        title = f"End {counted(len(outdated), 'worker')} that differ from the file"
        steps.append(_termination(location, outdated, id="end-outdated", title=title, after=last))

    cluster_leash = leash.of(location)
    if spec.leash or leashes.is_recorded(site.state):
        steps += leashes.steps(spec, site, cluster_leash, after=last)
    steps.append(nodes.step(spec, location, before, seconds=NODES_SECONDS, after=last))
    steps += leashes.proof(spec, cluster_leash, after=last)
    return steps


def _cost(spec: ClusterSpec, location: Location) -> str:
    """Return the size and price of a new cluster, and if a leash is missing:

    `1 head m5.large; 3.11 USD an hour; no leash ends it`
    """
    parts = []
    types = []
    is_bound = False
    for group in desired.groups(spec).values():
        size = str(group.most)
        if group.least != group.most:
            size = f"{group.least} to {group.most}"
        parts.append(f"{size} {group.name} {group.instance_type}")
        types += [group.instance_type] * group.most
        if group.spot or group.least < group.most:
            is_bound = True

    price = nodes.cost(location.aws, location.aws.region, types, at_most=is_bound)
    end = "" if spec.leash else "no leash ends it"
    return "; ".join(filter(None, (", ".join(parts), price, end)))


def _differences(launch: Launch, head: Instance) -> str:
    """Return the file's differences from the document that made the head.

    This machine has that document if the head's newest `ray up` ran here.
    """
    unknown = "the file that the head was made from is not known here"
    file = launch.location.state / "ray-cluster.yaml"
    mounted = launch.location.mounted / "environment"
    if not (file.exists() and mounted.exists()):
        return unknown

    before = yaml.safe_load(file.read_text())
    environment = mounted.read_text()
    kept = desired.fingerprints(before, environment)
    if head.tags.get(naming.HEAD_FROM) != kept[naming.HEAD_FROM]:
        return unknown

    parts = [*desired.differences(desired.of_head(before), desired.of_head(launch.document))]
    lines = {*environment.splitlines()} ^ {*launch.environment.splitlines()}
    variables = {line.removeprefix("export ").partition("=")[0] for line in lines}
    for name in sorted(variables):
        parts.append(f"env.{name} differs")
    return "; ".join(parts) or "ec2.tags differ"


def _has_surplus(spec: ClusterSpec, found: Sequence[Instance]) -> bool:
    """Say whether the autoscaler ends workers: a group exceeds its maximum."""
    running = Counter(each.group for each in found if each.runs and not each.is_head)
    return any(running[group.name] > group.most for group in spec.workers)


def _outdated(found: Sequence[Instance], document: Mapping[str, Any]) -> list[Instance]:
    outdated = []
    for instance in found:
        made_from = instance.tags.get(naming.NODE_FROM)
        if not instance.is_head and made_from != desired.node_from(document, instance.group):
            outdated.append(instance)
    return outdated


def is_made_from(head: Instance, made_from: Mapping[str, str]) -> bool:
    return head.runs and all(head.tags.get(key) == value for key, value in made_from.items())


def _needs_another(head: Instance, made_from: Mapping[str, str]) -> bool:
    """Say whether a head that may have runs must be replaced.

    A head of plain `ray up` must be replaced. So must a head that ran Ray and
    differs from the file. A head without a fingerprint never ran Ray, and has
    no runs.
    """
    written = head.tags.get(naming.HEAD_FROM)
    return naming.CLUSTER not in head.tags or written not in (None, made_from[naming.HEAD_FROM])


def _surplus(found: Sequence[Instance], *, recreate: bool) -> list[Instance]:
    """Return the instances to end before `ray up`.

    With --recreate, or if no head runs, returns all instances; else only
    stopped instances, which Ray would not find.
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
        left = []
        for instance in snapshot.of_cluster(location):
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
