"""A cluster on EC2: made by `ray up`, trained on, and removed without a trace in the account.

Each test needs the one before.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bed.aws_account import AMI, DOCKER_AMI
from tests.bed.aws_api import Fault
from tests.bed.ec2 import Cloud
from tests.bed.images import RAY_AWS
from tests.real import jobs
from tests.real.forwarded import assert_forwarded
from tests.real.leashed import ended_in_time, operator_leaves
from tests.real.yard import Yard

pytestmark = [pytest.mark.ec2, pytest.mark.timeout(900)]
CLUSTER = f"""
name: {{name}}
backend: ec2
head: {{{{cpus: 1, memory: 1GiB}}}}
workers:
  - {{{{name: cpu, count: 2, cpus: 1, memory: 1GiB, resources: {{{{A100: 2}}}}, ray_start: {{{{log-style: record}}}}}}}}
ec2: {{{{region: us-west-2, ami: {AMI}, instance_type: m5.large, disk: 20GiB, use_internal_ips: true}}}}
leash: {{{{idle: 2h, deadline: 12h}}}}
"""


@pytest.fixture(scope="module")
def yard(cloud: Cloud) -> Iterator[Yard]:
    made = Yard(cloud.home, cluster="lab", environ=cloud.environ())
    made.write_cluster(CLUSTER)
    yield made
    made.run("cluster.down", "--end-runs")


@pytest.mark.lifecycle
def test_ray_up_makes_a_cluster_whose_nodes_all_answer(cloud: Cloud, yard: Yard) -> None:
    planned = {
        step["title"]: (step["state"], step["seen"]) for step in yard.json("cluster.plan")["steps"]
    }
    assert planned["Make a security group"][0] == "would"
    assert planned["Launch the head"] == (
        "would",
        "1 head m5.large, 2 cpu m5.large; 0.29 USD an hour",
    )
    assert planned["Set the leash: idle 2h, deadline 12h"][0] == "after"
    print(yard.run("cluster.up", seconds=600).stderr)
    now = yard.json("cluster.status")
    assert (now["state"], [node["state"] for node in now["nodes"]]) == ("up", ["up"] * 3)
    assert all("m5.large us-west-2" in node["host"] for node in now["nodes"])
    # Ray's own defaults would allow SSH from everywhere, and give the head every right over EC2.
    group = cloud.ec2.describe_security_groups(GroupNames=["trainyard-lab"])["SecurityGroups"][0]
    spans = [span["CidrIp"] for rule in group["IpPermissions"] for span in rule.get("IpRanges", ())]
    assert spans == [f"{cloud.address}/32"]


@pytest.mark.lifecycle
def test_up_again_changes_nothing(yard: Yard) -> None:
    began = time.monotonic()
    assert not any(step["changed"] for step in yard.json("cluster.up")["steps"])
    print(f"up again took {time.monotonic() - began:.1f} s")


def test_the_token_is_only_in_private_files_of_the_nodes(cloud: Cloud, yard: Yard) -> None:
    token = (yard.state / "mounted" / "token").read_text()
    said = [
        str(cloud.instances()),
        str(cloud.requests()),
        (yard.state / "ray-cluster.yaml").read_text(),
    ]

    said.append((yard.state / "ray-up.log").read_text())
    readable = (
        "find / -xdev -type f -perm /o+r -newer /etc/hostname -exec grep -ls TOKEN {} + "
        "2>/dev/null || true"
    )

    for instance in cloud.instances("running"):
        node = cloud.container(instance)
        said.append(node.shell("cat /proc/*/cmdline 2>/dev/null || true").stdout)
        assert node.shell(readable.replace("TOKEN", token)).stdout == ""

    assert not any(token in text for text in said)


def test_neither_a_node_nor_a_client_without_the_token_is_let_in(cloud: Cloud, yard: Yard) -> None:
    worker = cloud.container(cloud.instances("running", ray_node_type="worker")[0])
    settings = f"RAY_AUTH_MODE=token RAY_AUTH_TOKEN={'0' * 64}"
    joins = f"{settings} ray start --address={cloud.head().ip}:6379"
    assert "InvalidAuthToken" in worker.shell(f"su - ubuntu -c '{joins}' 2>&1 || true").stdout
    # wget exits with 6 where the request is rejected (401).
    asks = "wget -qO /dev/null http://127.0.0.1:8265/api/version"
    assert cloud.head().shell(f"{asks} || echo $?").stdout.strip() == "6"
    cloud.head().shell(f'{asks} --header="Authorization: Bearer $(cat ~ubuntu/.trainyard/token)"')


@pytest.mark.lifecycle
def test_smoke_and_cartpole_run_on_every_node_and_outputs_come_back(yard: Yard) -> None:
    assert yard.json("smoke.run")["ok"]
    smaller = (
        "matrix.seed=[0, 1, 2]",
        "together=true",
        'command=[python, train.py, --seed, "{seed}", --iterations, "20"]',
    )
    sets = [word for one in smaller for word in ("--set", one)]
    report = yard.json("train.dispatch", "jobs/cartpole", *sets, seconds=300)
    assert len({task["attempts"][0]["node"] for task in report["tasks"]}) == 3
    results = [
        json.loads(path.read_text()) for path in jobs.newest(yard).glob("outputs/*/result.json")
    ]
    assert sorted(result["seed"] for result in results) == [0, 1, 2]


def test_a_shell_is_on_the_node_that_was_named(cloud: Cloud, yard: Yard) -> None:
    worker = next(node for node in yard.json("cluster.status")["nodes"] if node["group"] == "cpu")
    done = yard.run("cluster.shell", worker["instance"]["id"], "--command", "hostname -I; whoami")
    instance = next(
        each for each in cloud.instances() if each["InstanceId"] == worker["instance"]["id"]
    )
    assert instance["PrivateIpAddress"] in done.stdout
    assert done.stdout.split()[-1] == "ubuntu"
    program = (
        'import ray; ray.init(); print(sorted(each["Resources"].get("A100", 0) for each in '
        "ray.nodes()))"
    )
    said = yard.run("cluster.shell", "--command", f"python3 -c '{program}'").stdout.splitlines()[-1]
    assert said == "[0, 2.0, 2.0]"
    assert_forwarded(yard, worker["name"])


def test_the_logs_are_those_of_the_nodes_of_ray_up_and_of_the_autoscaler(yard: Yard) -> None:
    lines = yard.run("cluster.logs", "--no-follow").stdout
    assert {"ray-up.log", "monitor.log", "raylet.out"} <= set(lines.replace(":", " ").split())


def test_another_image_or_type_of_the_head_needs_to_be_asked_for(yard: Yard) -> None:
    plan = yard.json("cluster.plan", "--set", "ec2.groups.head.disk=30GiB")["steps"]
    seen = next(step for step in plan if step["title"] == "Replace the head that runs")["seen"]
    assert (
        seen == "needs --recreate, which ends everything on the cluster: disk: 20 now, 30 desired"
    )
    refused = yard.run("cluster.up", "--set", "ec2.groups.head.disk=30GiB", expect=2).stderr
    assert "replacing it ends everything on the cluster" in refused


def test_workers_of_other_sizes_replace_those_that_run_and_the_head_stays(
    cloud: Cloud, yard: Yard
) -> None:
    head, before = cloud.head().id, {instance["InstanceId"] for instance in cloud.instances()}
    # If the subnet changes, plain `ray up` would make another head.
    vpc = cloud.ec2.describe_vpcs()["Vpcs"][0]["VpcId"]
    subnet = cloud.ec2.create_subnet(
        VpcId=vpc, CidrBlock=cloud.network.replace(".0.0/16", ".240.0/24")
    )["Subnet"]
    yard.write_cluster(CLUSTER.replace("count: 2, cpus: 1", "count: 1, cpus: 2"))
    yard.run("cluster.up", seconds=600)
    cloud.ec2.delete_subnet(SubnetId=subnet["SubnetId"])
    assert {instance["InstanceId"] for instance in cloud.instances()} & before == {head}
    assert [node["state"] for node in yard.json("cluster.status")["nodes"]] == ["up", "up"]
    assert not any(step["changed"] for step in yard.json("cluster.up")["steps"])


def test_its_leash_ends_it_although_the_operator_is_gone(
    cloud: Cloud, yard: Yard, tmp_path: Path
) -> None:
    leash = yard.json("cluster.status")["leash"]
    assert (leash["idle"], leash["problem"]) == (7200.0, "")
    head = cloud.instances(ray_node_type="head")[0]
    assert leash["deadline"] == head["LaunchTime"].timestamp() + 12 * 3600
    _, due = operator_leaves(yard, tmp_path / "away", made=head["LaunchTime"].timestamp())
    ended_in_time(
        yard, tmp_path / "away", lambda: [each["InstanceId"] for each in cloud.instances()], due=due
    )
    # The end by the leash leaves these objects, which cost nothing.
    kinds = {each.split()[0] for each in cloud.left()}
    assert kinds == {"key-pair", "security-group", "role", "instance-profile"}
    (listed,) = yard.json("cluster.list")["clusters"]
    assert listed["place"] == "us-west-2: no instance; left: key-pair, security-group"


@pytest.mark.lifecycle
def test_down_leaves_nothing_in_the_account_or_here(cloud: Cloud, yard: Yard) -> None:
    cloud.fail(Fault("ec2:DeleteSecurityGroup", "UnauthorizedOperation", "not you", 403))
    refused = yard.run("cluster.down", expect=7, seconds=300).stderr
    cloud.heal()
    assert "error: AWS does not allow this user to ec2:DeleteSecurityGroup" in refused
    assert "aws ec2 delete-security-group --region us-west-2 --group-id sg-" in refused
    assert "aws ec2 delete-key-pair --region us-west-2 --key-name trainyard-lab" in refused
    print(yard.run("cluster.down", seconds=300).stderr)
    assert cloud.left() == set()
    assert not os.path.exists(yard.state)
    assert yard.json("cluster.status")["state"] == "down"


def test_nodes_of_an_image_are_containers_and_a_failed_worker_an_error(
    cloud: Cloud, yard: Yard
) -> None:
    cloud.publish(RAY_AWS)
    registry = f'registry: {{{{address: "{cloud.registry}", insecure: true}}}}\n'
    text = f"{CLUSTER}image: {cloud.registry}/{RAY_AWS}\n{registry}".replace(
        AMI, DOCKER_AMI
    ).replace("count: 2", "count: 1")
    yard.write_cluster(text, name="image")
    # `docker` fails on that node: the set-up of a worker fails, while `ray up` succeeds.
    cloud.break_next(
        "printf '#!/bin/sh\\necho no engine >&2; exit 1\\n' > /usr/local/bin/docker; chmod +x "
        "/usr/local/bin/docker",
        ray_node_type="worker",
    )

    failed = yard.run("cluster.up", "-f", "image", expect=6, seconds=600).stderr
    assert "could not be set up; its last output" in failed
    assert "no engine" in failed
    broken = [
        node
        for node in yard.json("cluster.status", "-f", "image")["nodes"]
        if node["group"] == "cpu"
    ]

    cloud.ec2.terminate_instances(
        InstanceIds=[node["host"].split()[0] for node in broken if node["host"]]
    )
    print(yard.run("cluster.up", "-f", "image", seconds=600).stderr)
    nodes = yard.json("cluster.status", "-f", "image")["nodes"]
    assert {node["state"] for node in nodes} == {"up"}
    assert yard.json("smoke.run", "-f", "image")["ok"]
    shell = yard.run(
        "cluster.shell", "head", "--command", "whoami; ray --version", "-f", "image"
    ).stdout
    assert shell.startswith("ray\nray, version")
    down = yard.run("cluster.down", "--keep-disks", "-f", "image", seconds=300)
    kept = [each.split()[1] for each in cloud.left()]
    assert [each[:4] for each in kept] == ["vol-"] * 2
    assert "Keep 2 disks (40 GiB, 3.20 USD a month): vol-" in down.stderr
    assert "is gone, nothing but its disks is left" in down.stdout
    (remark,) = yard.json("cluster.list")["remarks"]
    assert "us-west-2: kept 2 disks (40 GiB, 3.20 USD a month): vol-" in remark

    for volume in kept:
        cloud.ec2.delete_volume(VolumeId=volume)
