"""How `cluster.up`, `status` and `down` judge the instances that AWS has."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from tests.unit.fake_aws import FakeAws
from tests.unit.fake_ray import FakeRay
from tests.unit.fake_time import FakeTime
from tests.unit.step_lists import refuse_lost_ids
from trainyard.backends import ec2
from trainyard.backends.contract import Site
from trainyard.backends.ec2 import (
    account,
    desired,
    diagnosis,
    down,
    naming,
    nodes,
    objects,
    ray_up,
    snapshot,
)
from trainyard.backends.ec2 import location as locations
from trainyard.backends.ec2.desired import Inputs
from trainyard.backends.ec2.location import Location
from trainyard.backends.shared.record import write_cluster
from trainyard.errors import (
    LeftoverError,
    LockedOutError,
    NotReadyError,
    OutsideError,
    RequestError,
)
from trainyard.seams.aws import Aws
from trainyard.seams.ray_autoscaler import RayUp
from trainyard.seams.ssh import forward
from trainyard.seams.ssh.connection import Connection
from trainyard.seams.ssh.login import HostError
from trainyard.spec.cluster import ClusterSpec, LeashSection
from trainyard.spec.groups import Head
from trainyard.steps import Step, plan

SPEC = ClusterSpec.model_validate(
    {
        "name": "lab",
        "backend": "ec2",
        "head": {"cpus": 1},
        "workers": [{"name": "cpu", "count": 2, "cpus": 1}],
    }
)
INPUTS = Inputs(
    Location("lab", Aws({}, region="us-west-2"), Path("/state"), "me", SPEC.ec2, {}), "sg-1", {}
)
DOCUMENT = desired.document(SPEC, INPUTS)
MADE_FROM = desired.fingerprints(DOCUMENT, desired.environment(SPEC, ""))
SITE = Site(Path("/state"), {"TRAINYARD_OWNER": "me"}, "ec2")
TAGS = naming.pairs({naming.CLUSTER: "lab", naming.OWNER: "me"})
FAR = datetime(2100, 1, 1, tzinfo=timezone.utc)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    clock = FakeTime()
    monkeypatch.setattr(down, "time", clock)
    return clock


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> FakeAws:
    """Return the account that a cluster's location leads to."""
    aws = FakeAws()
    monkeypatch.setattr(locations, "Aws", lambda *_, **__: aws)
    return aws


class FakeTunnel:
    """A tunnel to the head's dashboard, or why its host refuses one."""

    refusal: HostError | None = None

    def port(self, connection: Connection, port: int) -> int:
        assert port == nodes.DASHBOARD_PORT
        if self.refusal:
            raise self.refusal
        return 1


@pytest.fixture
def tunnel(monkeypatch: pytest.MonkeyPatch) -> FakeTunnel:
    tunnel = FakeTunnel()
    monkeypatch.setattr(forward, "local_port", tunnel.port)
    return tunnel


def instance(
    number: int, kind: str = "worker", state: str = "running", **tags: str
) -> dict[str, Any]:
    own = {
        naming.CLUSTER: "lab",
        naming.OWNER: "me",
        naming.RAY_CLUSTER: "lab",
        naming.RAY_KIND: kind,
    }

    own |= {
        naming.RAY_GROUP: "head" if kind == "head" else "cpu",
        naming.NODE_FROM: desired.node_from(DOCUMENT, "cpu"),
    }
    own |= tags
    described = {
        "InstanceId": f"i-0000000000000000{number}",
        "State": {"Name": state},
        "Tags": naming.pairs(own),
    }

    return described | {
        "InstanceType": "m5.large",
        "LaunchTime": FAR,
        "PrivateIpAddress": f"10.0.0.{number}",
    }


def place(aws: FakeAws, state: Path = Path("/state")) -> Location:
    return Location("lab", cast(Aws, aws), state, "me", SPEC.ec2, {})


def planned(aws: FakeAws, *, recreate: bool = False) -> list[tuple[str, str]]:
    steps = ray_up.steps(SPEC, SITE.wishing(recreate=recreate), place(aws), INPUTS)
    refuse_lost_ids(steps)
    # The last asks the dashboard.
    return [(step.title, step.state) for step in plan(steps[:-1])]


def test_a_missing_cluster_begins_with_the_launch_of_its_head() -> None:
    titles = planned(FakeAws())
    assert titles[0] == ("Launch the head", "would")
    assert {state for _, state in titles[1:]} == {"after"}


def test_the_plan_of_a_new_cluster_shows_its_size_and_cost() -> None:
    term = {"OnDemand": {"t": {"priceDimensions": {"d": {"pricePerUnit": {"USD": "0.096"}}}}}}

    def first(spec: ClusterSpec, **prices: list[str]) -> str:
        aws = FakeAws()
        aws.prices = prices
        return plan(ray_up.steps(spec, SITE, place(aws), INPUTS)[:1])[0].detail

    assert first(SPEC) == "1 head m5.large, 2 cpu m5.large; no leash ends it"
    group = SPEC.workers[0].model_copy(update={"count": None, "min": 0, "max": 4})
    grows = SPEC.model_copy(update={"workers": (group,), "leash": LeashSection(deadline=3600.0)})
    shown = "1 head m5.large, 0 to 4 cpu m5.large; at most 0.48 USD an hour"
    assert first(grows, PriceList=[json.dumps({"terms": term})]) == shown


def test_differences_of_a_head_have_the_files_key_names(tmp_path: Path) -> None:
    aws = FakeAws([instance(1, "head", **MADE_FROM)])
    spec = SPEC.model_copy(update={"head": Head(cpus=2), "env": {"NAME": "x"}})
    location = place(aws, tmp_path)

    def reason() -> str:
        return plan(ray_up.steps(spec, SITE, location, INPUTS)[:1])[0].detail.partition(": ")[2]

    assert reason() == "the file that the head was made from is not known here"
    locations.write_mounted(location, desired.environment(SPEC, ""))
    (tmp_path / "ray-cluster.yaml").write_text(yaml.safe_dump(DOCUMENT))
    assert reason() == "cpus: 1 now, 2 desired; env.NAME differs"


def test_a_head_that_is_as_the_file_says_is_left_alone() -> None:
    head = instance(1, "head", **{**MADE_FROM, naming.RAY_STATUS: "up-to-date"})
    assert planned(FakeAws([head])) == [("The head matches the file", "already")]


def test_a_head_that_never_came_up_gets_ray_up_again() -> None:
    assert planned(FakeAws([instance(1, "head")]))[0] == ("Run `ray up` again", "would")


def test_another_head_has_to_be_asked_for_and_then_all_of_it_goes() -> None:
    head = instance(1, "head", **{**MADE_FROM, naming.HEAD_FROM: "another"})
    aws = FakeAws([head, instance(2)])
    assert planned(aws)[0] == ("Replace the head that runs", "would")
    assert planned(aws, recreate=True)[0] == ("Terminate 2 instances", "would")
    assert planned(FakeAws([head, instance(2, state="stopped")]))[0] == (
        "Replace the head that runs",
        "would",
    )


@pytest.mark.parametrize(
    "left",
    [[instance(2)], [instance(1, "head", "stopped"), instance(2)]],
    ids=["no head", "a stopped head"],
)
def test_workers_without_a_head_go_before_another_comes(left: list[dict[str, Any]]) -> None:
    assert planned(FakeAws(left))[0] == (
        f"Terminate {len(left)} instance{'s' * (len(left) > 1)}",
        "would",
    )


def test_a_foreign_cluster_is_refused() -> None:
    with pytest.raises(RequestError, match="that Trainyard did not make"):
        locations.refuse_foreign(place(FakeAws()), {naming.RAY_CLUSTER: "lab"})
    with pytest.raises(RequestError, match="was made by her, where its key and its token are"):
        locations.refuse_foreign(place(FakeAws()), {naming.CLUSTER: "lab", naming.OWNER: "her"})


@pytest.mark.usefixtures("tunnel")
def test_takeover_checks_for_runs_first_and_reaches_an_untagged_head(
    aws: FakeAws,
) -> None:
    head = instance(1, "head") | {
        "Tags": naming.pairs({naming.RAY_CLUSTER: "lab", naming.RAY_KIND: "head"})
    }
    aws.made = [head]
    (step,) = account.adopt(place(aws))
    assert (step.disruptive, step.done().holds) == (True, False)
    assert ec2.BACKEND.connect(SPEC, SITE).address == "http://127.0.0.1:1"


def test_a_node_is_as_its_instance_and_ray_say() -> None:
    described = [
        instance(1, "head"),
        instance(2, **{naming.RAY_STATUS: "setting-up"}),
        instance(3, state="terminated"),
        instance(4, **{naming.RAY_STATUS: "update-failed"}),
        instance(5),
    ]

    found = snapshot.of_cluster(place(FakeAws(described)))
    states = [
        (node.name, node.state, node.detail)
        for node in nodes.statuses(SPEC, found, frozenset({"head"}))
    ]

    assert states == [
        ("head", "up", ""),
        ("cpu-00000002", "starting", "setting-up"),
        ("cpu-00000004", "broken", "its set-up failed"),
        ("cpu-00000005", "surplus", "boots"),
    ]

    absent = nodes.statuses(SPEC, [], frozenset())
    assert [(node.name, node.state) for node in absent] == [
        ("head", "absent"),
        ("cpu-?1", "absent"),
        ("cpu-?2", "absent"),
    ]


def test_down_removes_a_foreign_cluster_only_if_its_name_is_given() -> None:
    aws = FakeAws([instance(1, "head", **{naming.OWNER: "her"})])
    with pytest.raises(RequestError, match="was made by her") as refused:
        down.steps(place(aws), SITE)
    assert str(refused.value.hint).endswith(
        "To remove that cluster, which ends its runs and loses their outputs: "
        "trainyard cluster.down --set name=lab --backend ec2 --set ec2.region=us-west-2"
    )
    assert down.steps(place(aws), replace(SITE, overrides=("name=lab",)))[0].title.startswith(
        "Remove 1 head"
    )
    theirs = naming.pairs({naming.CLUSTER: "lab", naming.OWNER: "her"})
    with pytest.raises(RequestError, match="was made by her"):
        down.steps(place(FakeAws(security_groups=[{"GroupId": "sg-1", "Tags": theirs}])), SITE)


def test_a_clusters_account_is_recorded_and_another_one_is_refused(
    tmp_path: Path,
) -> None:
    site, aws = replace(SITE, state=tmp_path), FakeAws()
    step = locations.record_step(place(aws), site)
    assert not step.done().holds
    step.do()
    assert step.done().holds
    made = replace(place(aws), account=locations.find(SPEC, site).account)
    assert snapshot.of_cluster(made) == []
    aws.caller = {"Account": "2"}
    for ask in (partial(down.steps, made, site), partial(snapshot.of_cluster, made)):
        with pytest.raises(
            RequestError, match="is in the AWS account 1; these credentials are of 2"
        ):
            ask()


def test_another_region_than_the_one_that_is_written_down_is_refused(tmp_path: Path) -> None:
    site = replace(SITE, state=tmp_path)
    other = SPEC.model_copy(update={"ec2": SPEC.ec2.model_copy(update={"region": "eu-west-1"})})
    locations.refuse_elsewhere(other, site)
    locations.record_step(place(FakeAws()), site).do()
    locations.refuse_elsewhere(SPEC, site)
    with pytest.raises(
        RequestError, match="is in the region us-west-2; now eu-west-1 is asked for"
    ) as refused:
        locations.refuse_elsewhere(other, site)
    assert str(refused.value.hint).endswith("trainyard cluster.down --set ec2.region=us-west-2")


def test_a_profile_that_is_named_wins_over_the_one_that_is_written_down(tmp_path: Path) -> None:
    site = replace(SITE, state=tmp_path)
    write_cluster(tmp_path, "ec2", {"account": "1", "region": "us-west-2", "profile": "old"})
    renamed = SPEC.model_copy(update={"ec2": SPEC.ec2.model_copy(update={"profile": "new"})})
    assert [locations.find(spec, site).aws.profile for spec in (SPEC, renamed)] == ["old", "new"]


def test_new_rules_are_authorized_before_old_ones_are_revoked() -> None:
    def rule(number: int, *, port: int, **who: Any) -> dict[str, Any]:
        id = {"SecurityGroupRuleId": f"sgr-{number}", "GroupId": "sg-1"}
        protocol = "tcp"
        if port == -1:
            protocol = "-1"
        ports = {"IpProtocol": protocol, "FromPort": port, "ToPort": port}
        return {**id, **ports, "IsEgress": False, **who}

    rules = [
        rule(1, port=22, CidrIpv4="192.0.2.1/32"),
        rule(2, port=-1, ReferencedGroupInfo={"GroupId": "sg-1"}),
        rule(3, port=-1, IsEgress=True, CidrIpv4="0.0.0.0/0"),
    ]

    listed = {"security_groups": [{"GroupId": "sg-1", "Tags": TAGS}], "security_group_rules": rules}
    aws = FakeAws(**listed)
    (*_, step) = objects.steps(place(aws), ["192.0.2.7/32"])
    assert step.done().detail == "it lets in 192.0.2.1/32 (tcp 22), sg-1"
    step.do()
    assert [change.split()[0] for change in aws.changes] == [
        "authorize_security_group_ingress",
        "revoke_security_group_ingress",
    ]
    rules[0]["CidrIpv4"] = "192.0.2.7/32"
    assert step.done().holds
    # Another port of the same block, which an administrator opened.
    rules.append(rule(4, port=8265, CidrIpv4="192.0.2.7/32"))
    assert not step.done().holds
    del rules[0]
    assert step.done().detail == "it lets in sg-1, 192.0.2.7/32 (tcp 8265)"
    rules[-1] = rule(1, port=22, CidrIpv4="192.0.2.7/32")
    assert step.done().holds
    assert (
        objects.steps(place(aws), ["192.0.2.7/32", "192.0.2.8/32"])[-1]
        .done()
        .detail.startswith("it lets in")
    )


def test_an_object_in_use_is_removed_once_free_or_reported_as_left(clock: FakeTime) -> None:
    aws = FakeAws(security_groups=[{"GroupId": "sg-1", "Tags": TAGS}])
    aws.held = 2
    group = next(step for step in down.steps(place(aws), SITE) if "security group" in step.title)
    group.do()
    assert aws.changes == ["delete_security_group"] * 3
    aws.held, clock.now = 10_000, 0.0
    with pytest.raises(LeftoverError) as error:
        group.do()
    assert clock.now > down.GONE_SECONDS
    (left,) = error.value.problems
    command = "aws ec2 delete-security-group --region us-west-2 --group-id sg-1"
    assert str(left) == f"security group sg-1: {command}"


def test_a_role_has_its_region_and_no_more_characters_than_iam_allows() -> None:
    assert naming.role("lab", "us-west-2") == "trainyard-lab-us-west-2"
    assert naming.role("x" * 40, "ap-southeast-1").endswith("x-ap-southeast-1")
    assert len(naming.role("x" * 40, "ap-southeast-1")) == 64


def test_down_ends_the_head_first_and_then_what_carries_the_tag() -> None:
    listed: dict[str, list[dict[str, Any]]] = {
        "security_groups": [{"GroupId": "sg-1", "Tags": TAGS}],
        "key_pairs": [{"KeyName": "trainyard-lab", "Tags": TAGS}],
    }
    aws = FakeAws([instance(2), instance(1, "head"), instance(3, state="terminated")], **listed)
    for step in down.steps(place(aws), SITE):
        if not step.done().holds:
            step.do()
    assert aws.changes == [
        "terminate_instances ['i-00000000000000001', 'i-00000000000000002']",
        "delete_security_group",
        "delete_key_pair",
    ]


class FakeDisks(FakeAws):
    """An account in which only volumes are, each with its tags."""

    def __init__(self, instances: Iterable[dict[str, Any]], **volumes: dict[str, str]) -> None:
        super().__init__(instances)
        self.volumes = volumes

    def described(
        self, kind: str, only: Mapping[str, Iterable[str]] | None = None, **more: Any
    ) -> list[dict[str, Any]]:
        about = {"Size": 20, "VolumeType": "gp3", "Status": "available", "Attachments": []}
        self.listed["volumes"] = [
            {"VolumeId": name, "Tags": naming.pairs(tags), **about}
            for name, tags in self.volumes.items()
        ]
        return super().described(kind, only, **more)

    def call(self, service: str, operation: str, **arguments: Any) -> dict[str, Any]:
        for name in arguments.get("Resources", ()):
            for tag in arguments["Tags"]:
                self.volumes[name].pop(tag["Key"], None)
                self.volumes[name] |= (
                    {tag["Key"]: tag["Value"]} if operation == "create_tags" else {}
                )
        return super().call(service, operation, **arguments)


def test_a_kept_disk_stays_with_its_cluster_until_the_instances_end() -> None:
    aws = FakeDisks([instance(1, "head")], disk={naming.CLUSTER: "lab", naming.OWNER: "me"})
    keeping = down.steps(place(aws), SITE.wishing(keep_disks=True))
    assert next(step for step in keeping if not step.done().holds).disruptive
    keeping[0].do()
    assert "Remove 1 volume: disk" in [step.title for step in down.steps(place(aws), SITE)]
    for step in keeping[1:]:
        if not step.done().holds:
            step.do()
    assert aws.volumes == {"disk": {naming.KEPT: "lab", naming.OWNER: "me"}}


def test_down_reports_the_kept_disks_and_the_objects_of_ray_up() -> None:
    ours = instance(1, "head", **{naming.HEAD_FROM: naming.RAY_UP})
    steps = down.steps(place(FakeDisks([ours], disk={naming.KEPT: "lab"})), SITE)
    assert [step.done().detail for step in steps if step.kind == "stays"] == [
        (
            "these objects of `ray up` stay, because other clusters may use them: key pair, "
            "security group, role"
        ),
        (
            "kept 1 disk (20 GiB): disk; to remove one: aws ec2 delete-volume --region us-west-2 "
            "--volume-id ID"
        ),
    ]
    assert "stays" not in [step.kind for step in down.steps(place(FakeDisks([instance(1)])), SITE)]


def test_a_status_shows_the_address_by_which_a_node_is_reached() -> None:
    (found,) = snapshot.of_cluster(
        place(FakeAws([instance(1, "head") | {"PublicIpAddress": "203.0.113.1"}]))
    )
    inside = SPEC.ec2.model_copy(update={"use_internal_ips": True})
    shown = [nodes.describe(found, section)["address"] for section in (SPEC.ec2, inside)]
    assert shown == ["203.0.113.1", "10.0.0.1"]


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (
            (
                "2026-11-23 08:12:58,684\tERROR x.py:1 -- botocore.exceptions.ClientError: "
                "(InsufficientInstanceCapacity)"
            ),
            "AWS has no m5.large left in the zones that were tried",
        ),
        (
            "Node Launch Exception (InvalidInstanceType.NotFound): ...",
            "there is no such instance type in the region",
        ),
        ("ubuntu@10.0.0.4: Permission denied (publickey).", "the head rejects the login as ubuntu"),
        (
            "... iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name",
            "EC2 does not know the instance",
        ),
        ("wait_ready timeout exceeded.", "the head cannot be reached by SSH"),
        (
            (
                "[W 98 98] rpc_client.h:153: Failed to connect to GCS at address 10.0.0.4:6379 "
                "within 5 seconds."
            ),
            "the head does not reach the head, 10.0.0.4",
        ),
        ("failed to register layer: ... no space left on device", "the disk of the head is full"),
        (
            "botocore.exceptions.NoCredentialsError: Unable to locate",
            "there are no AWS credentials on the head",
        ),
    ],
)
def test_an_error_printed_by_ray_has_its_cause(line: str, what: str) -> None:
    found = diagnosis.cause(
        ["Launching", line, "!!!"], name="the head", type_="m5.large", user="ubuntu"
    )
    assert found is not None
    assert found.message.startswith(what)


def test_the_cause_is_reported_instead_of_its_consequences() -> None:
    lines = ["Permission denied (publickey).", "Connection refused", "wait_ready timeout exceeded."]
    found = diagnosis.cause(lines, name="the head", user="ubuntu")
    assert found is not None
    assert found.message == "the head rejects the login as ubuntu"


def test_a_failure_without_a_known_cause_shows_its_last_output() -> None:
    lines = ["2026-11-23 08:12:58,684\tINFO updater.py:490 -- (1/3) make it", "no rule to make it"]
    lines += [
        "2026-11-23 08:42:39,544\tERR updater.py:177 -- New status: update-failed",
        "Traceback",
        "x = 1",
    ]
    assert diagnosis.failed_command(lines, name="gpu-1").message == (
        "gpu-1 could not be set up; its last output:\n    (1/3) make it\n    no rule to make it"
    )


ATTEMPT = "create_instances: Attempt failed with ... (InsufficientInstanceCapacity) ..., retrying."
REFUSED = (
    "Failed to launch 1 nodes of type cpu: Node Launch Exception "
    "(InsufficientInstanceCapacity): ..."
)
LAUNCHED = "Launched 1 nodes of type cpu."


def refuse(dashboard: FakeRay, log: list[str], printed: list[str]) -> None:
    aws = FakeAws([instance(1, "head")])
    dashboard.has(FakeRay.node("head"))
    dashboard.files = {"monitor.log": log, "monitor.out": printed}
    nodes.refuse_broken(place(aws), snapshot.of_cluster(place(aws))[0], [], reached=True)


@pytest.mark.usefixtures("tunnel")
def test_a_launch_that_was_refused_and_then_was_not_is_no_error(dashboard: FakeRay) -> None:
    refuse(dashboard, [], [ATTEMPT])
    refuse(dashboard, [REFUSED, LAUNCHED], [ATTEMPT, LAUNCHED, ATTEMPT])
    with pytest.raises(OutsideError, match=r"AWS has no m5\.large left in the zones"):
        refuse(dashboard, [LAUNCHED, REFUSED], [ATTEMPT])


@pytest.mark.usefixtures("tunnel")
def test_a_gone_head_is_an_error_and_an_ended_worker_has_its_reason(
    dashboard: FakeRay,
) -> None:
    dashboard.has(FakeRay.node("head"))
    gone = {"StateReason": {"Message": "Client.VolumeLimitExceeded: Volume limit exceeded"}}
    stopped = {"StateReason": {"Message": "Client.UserInitiatedShutdown: User initiated shutdown"}}

    aws = FakeAws(
        [
            instance(1, "head"),
            instance(2, state="terminated") | gone,
            instance(3, state="terminated") | stopped,
        ]
    )

    step = nodes.step(SPEC, place(aws), frozenset(), seconds=1, after="Start Ray on the head")
    ended = "cpu-00000002 ended: Client.VolumeLimitExceeded: Volume limit exceeded"
    assert step.done().detail == f"waiting for cpu-?1 (no instance), cpu-?2 (no instance); {ended}"
    aws.made[0] = instance(1, "head", "terminated") | stopped

    with pytest.raises(OutsideError, match="the head is gone") as error:
        step.done()

    assert "Client.UserInitiatedShutdown" in str(error.value.where)


def test_a_head_is_connected_to_once_ray_ran_there_and_where_it_lets_us_in(
    aws: FakeAws, tunnel: FakeTunnel
) -> None:
    tunnel.refusal = HostError("10.0.0.1 refuses every key of user ubuntu")
    aws.made = [instance(1, "head")]
    with pytest.raises(NotReadyError, match="cluster lab is not up"):
        ec2.BACKEND.connect(SPEC, SITE)
    aws.made = [instance(1, "head", **MADE_FROM)]
    with pytest.raises(LockedOutError, match="refuses every key"):
        ec2.BACKEND.connect(SPEC, SITE)


def test_instances_that_no_leash_ends_are_told(aws: FakeAws, tunnel: FakeTunnel) -> None:
    spec = SPEC.model_copy(update={"leash": LeashSection(deadline=3600.0)})
    tunnel.refusal = HostError("10.0.0.1 does not answer")

    def remark(*made: dict[str, Any]) -> str:
        aws.made = list(made)
        return ec2.BACKEND.status(spec, SITE).remark

    assert (
        remark()
        == remark(instance(1, "head", **MADE_FROM))
        == remark(instance(2, state="terminated"))
        == ""
    )

    for made in (instance(1, "head"), instance(2)):
        assert remark(made) == "the leash of the file is not set: trainyard cluster.up"


def test_status_reports_a_foreign_owner_and_shell_accepts_an_instance_id(
    aws: FakeAws, tunnel: FakeTunnel
) -> None:
    tunnel.refusal = HostError("10.0.0.1 does not answer")
    aws.made = [instance(1, "head", **{naming.OWNER: "her"}), instance(2)]
    now = ec2.BACKEND.status(SPEC, SITE)
    assert now.remark == "cluster lab was made by her, where its key and its token are"

    known = {
        "id": aws.made[1]["InstanceId"],
        "type": "m5.large",
        "price_class": "on demand",
        "address": "10.0.0.2",
    }

    assert now.nodes[1].instance == known
    shells = [
        ec2.status.shell(SPEC, SITE, node=name, command="", terminal=False)
        for name in ("cpu-00000002", known["id"])
    ]
    assert shells[0] == shells[1]


def test_a_head_that_is_too_busy_to_answer_has_an_unknown_autoscaler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class BusyHead:
        def run(self, words: list[str], *, seconds: float) -> None:
            raise NotReadyError(f"{words[0]} took longer than {seconds:.0f} s")

    monkeypatch.setattr(snapshot, "reach", lambda location, head: BusyHead())
    head = snapshot._instance(instance(1, "head"))
    assert ec2.status._autoscaler(place(FakeAws([])), head) == (
        "it is not known whether the autoscaler on the head runs: bash took longer than 20 s"
    )


def test_billed_instances_exclude_stopped_and_foreign_ones(aws: FakeAws) -> None:
    aws.made = [
        instance(1, "head"),
        instance(2, state="pending"),
        instance(3, state="stopped"),
        instance(4),
    ]
    aws.made[-1]["Tags"] = naming.pairs({naming.RAY_CLUSTER: "lab"})
    assert ec2.status.billed(SPEC, SITE) == [
        "head i-00000000000000001 m5.large",
        "cpu-00000002 i-00000000000000002 m5.large",
    ]


def test_keys_of_the_environment_do_not_win_over_a_profile(tmp_path: Path) -> None:
    environ = {"AWS_PROFILE": "lab", "AWS_ACCESS_KEY_ID": "other", "AWS_SESSION_TOKEN": "other"}
    assert locations.find(SPEC, Site(tmp_path, environ, "ec2")).environ == {"AWS_PROFILE": "lab"}
    del environ["AWS_PROFILE"]
    assert locations.find(SPEC, Site(tmp_path, environ, "ec2")).environ == environ


def test_steps_that_end_outdated_or_surplus_workers_are_disruptive() -> None:
    head = instance(
        1, "head", **{**MADE_FROM, naming.RAY_STATUS: "up-to-date", naming.MADE_FROM: "before"}
    )

    def ends(*workers: dict[str, Any]) -> list[str]:
        steps = ray_up.steps(SPEC, SITE, place(FakeAws([head, *workers])), INPUTS)
        return [step.title for step in steps if isinstance(step, Step) and step.disruptive]

    assert ends(instance(2), instance(3), instance(4, state="terminated")) == []
    # One too many, which the autoscaler itself will end.
    assert ends(instance(2), instance(3), instance(4)) == ["Run `ray up` again"]
    outdated = [
        instance(2, **{naming.NODE_FROM: "before"}),
        instance(3, **{naming.RAY_GROUP: "gone"}),
    ]
    assert ends(*outdated) == [
        "Run `ray up` again",
        "End 2 workers that differ from the file",
    ]


@pytest.mark.usefixtures("tunnel")
def test_up_waits_until_workers_that_are_too_many_have_ended(dashboard: FakeRay) -> None:
    names = ("head", *(f"cpu-0000000{number}" for number in (2, 3, 4)))
    dashboard.has(*map(FakeRay.node, names))
    aws = FakeAws([instance(1, "head"), instance(2), instance(3), instance(4)])
    step = nodes.step(SPEC, place(aws), frozenset(), seconds=1, after="Start Ray on the head")
    assert step.done().detail == "waiting for the end of cpu-00000004"
    aws.made[-1]["State"]["Name"] = "shutting-down"
    assert step.done().holds


AMIS = ("ami-1", "ami-2")


class FakeAccount(FakeAws):
    """An account with default subnets, and a parameter that holds an AMI."""

    subnets, ami = ["subnet-a"], "ami-1"

    def described(
        self, kind: str, only: Mapping[str, Iterable[str]] | None = None, **more: Any
    ) -> list[dict[str, Any]]:
        about = {"MapPublicIpOnLaunch": True, "DefaultForAz": True}
        self.listed = {
            "subnets": [{"SubnetId": name, **about} for name in self.subnets],
            "images": [{"ImageId": name, "RootDeviceName": "/dev/sda1"} for name in AMIS],
        }
        return super().described(kind, only, **more)

    def call(self, service: str, operation: str, **arguments: Any) -> dict[str, Any]:
        return {"Parameters": [{"Name": name, "Value": self.ami} for name in arguments["Names"]]}


def test_subnets_and_an_ami_that_were_found_out_stay_while_the_head_runs() -> None:
    section = SPEC.ec2.model_copy(update={"ami": "/aws/ami-id", "security_group": "sg-00000000"})
    spec, aws = SPEC.model_copy(update={"ec2": section}), FakeAccount()
    location = replace(place(aws), section=section)
    first = account.inputs(spec, SITE, location)
    tags = naming.read(
        desired.document(spec, first)["available_node_types"]["head"]["node_config"][
            "TagSpecifications"
        ][0]["Tags"]
    )

    aws.made = [instance(1, "head", **tags) | {"ImageId": "ami-1"}]
    aws.subnets, aws.ami = ["subnet-a", "subnet-b"], "ami-2"
    assert account.inputs(spec, SITE, location) == first
    anew = account.inputs(spec, SITE.wishing(recreate=True), location)
    assert (anew.subnets, anew.amis["/aws/ami-id"]["ImageId"]) == (
        ["subnet-a", "subnet-b"],
        "ami-2",
    )


def test_a_second_ray_up_is_refused_while_the_first_is_running(tmp_path: Path) -> None:
    log = tmp_path / "ray-up.log"
    with log.open("w") as held:
        held.write("process 4711\n")
        held.flush()
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(NotReadyError, match="is still running") as refused:
            RayUp(tmp_path / "ray-cluster.yaml", log, {}, restart=True)
    assert "kill 4711" in str(refused.value.hint)
