"""The bed's stand-in for EC2: `ray up` works on it, and it behaves as the tests of EC2 assume."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from botocore.exceptions import ClientError

from tests.bed import instances
from tests.bed.aws_account import AMI, GPU_AMI, QUOTAS, ROLE, USER
from tests.bed.aws_api import Fault
from tests.bed.ec2 import Cloud
from tests.bed.images import BASE
from tests.bed.instances import Instance
from tests.bed.kubernetes import wait
from tests.real import plain_ray_up

pytestmark = pytest.mark.bed
METADATA = "http://169.254.169.254/latest/meta-data/instance-id"


@pytest.fixture(scope="module")
def head(cloud: Cloud) -> Iterator[Instance]:
    """Give the head of a cluster made by plain `ray up`; its worker is still being launched."""
    with plain_ray_up.cluster(cloud) as head:
        yield head


def test_the_head_launches_a_worker_by_its_profile_and_the_worker_joins(
    cloud: Cloud, head: Instance
) -> None:
    plain_ray_up.wait_for_worker(cloud)
    launches = cloud.requests("ec2:RunInstances")
    assert [request["caller"] for request in launches] == [cloud.address, head.ip]
    nodes = (
        "import ray; ray.init(logging_level=40); print(*(n['NodeManagerAddress'] for n in "
        "ray.nodes() if n['Alive']))"
    )
    addresses = {instance["PrivateIpAddress"] for instance in cloud.instances()}
    assert set(head.run("su", "-", USER, "-c", f'python -c "{nodes}"').stdout.split()) == addresses


def test_an_instance_reads_its_own_metadata_and_other_machines_cannot(
    cloud: Cloud, head: Instance
) -> None:
    assert head.run("wget", "-qO-", METADATA).stdout == head.id
    who = (
        "import boto3; print(boto3.client('sts', "
        "region_name='us-west-2').get_caller_identity()['Account'])"
    )
    assert head.run("su", "-", USER, "-c", f'python -c "{who}"').stdout.strip() == "123456789012"
    assert (
        cloud.run(
            "wget", "-qO-", f"{cloud.url}/latest/meta-data/instance-id", check=False
        ).returncode
        != 0
    )


def test_an_instance_has_two_addresses_of_the_bed_and_no_way_out(
    cloud: Cloud, head: Instance
) -> None:
    found = next(one for one in cloud.instances() if one["InstanceId"] == head.id)
    assert found["PublicIpAddress"].startswith("198.18.")
    for address in (head.ip, found["PublicIpAddress"]):
        with socket.create_connection((address, 22), timeout=5) as connection:
            assert connection.recv(8) == b"SSH-2.0-"
    for outside in ("54.214.0.1", cloud.engine.bridge_ip):
        script = f"import socket; socket.create_connection(('{outside}', 443), timeout=5)"
        assert "Connection refused" in head.run("python", "-c", script, check=False).stderr
    assert head.run("getent", "hosts", "ec2.us-west-2.amazonaws.com", check=False).returncode == 2
    (worker,) = {one["PrivateDnsName"] for one in cloud.instances()} - {found["PrivateDnsName"]}
    assert worker in head.run("getent", "hosts", worker).stdout


@contextmanager
def _machine(cloud: Cloud) -> Iterator[Instance]:
    """Give an instance with a Docker engine and a GPU, on which Ray does not run."""
    launched = cloud.ec2.run_instances(
        ImageId=GPU_AMI, InstanceType="g5.xlarge", MinCount=1, MaxCount=1
    )
    machine = cloud.container(launched["Instances"][0])
    wait(machine.booted, "the instance has booted", seconds=60, logs=cloud.logs)
    yield machine
    cloud.ec2.terminate_instances(InstanceIds=[machine.id])
    wait(
        lambda: machine.run("true", check=False).returncode != 0, "the instance is gone", seconds=30
    )


@pytest.fixture(scope="module")
def machine(cloud: Cloud) -> Iterator[Instance]:
    with _machine(cloud) as machine:
        yield machine


def test_its_docker_engine_pulls_from_the_registry_of_the_cloud(
    cloud: Cloud, machine: Instance
) -> None:
    cloud.publish(BASE)
    wait(
        lambda: machine.run("docker", "version", check=False).returncode == 0,
        "Docker answers",
        seconds=30,
    )

    image = f"{cloud.registry}/{BASE}"
    done = machine.run(
        "su",
        "-",
        USER,
        "-c",
        f"docker run --rm --net host --ulimit nofile=65536:65536 {image} wget -qO- {METADATA}",
    )

    assert done.stdout == machine.id


def test_a_gpu_type_with_a_driver_shows_its_gpus(machine: Instance) -> None:
    assert (
        machine.run("nvidia-smi", "-L").stdout == "GPU 0: NVIDIA Trainyard Bed (UUID: GPU-bed-0)\n"
    )


def test_a_shutdown_from_inside_stops_it_and_it_starts_again_with_its_disk(
    cloud: Cloud, machine: Instance
) -> None:
    def in_state(state: str) -> bool:
        return [machine.id] == [
            one["InstanceId"] for one in cloud.instances(state) if one["InstanceId"] == machine.id
        ]

    # The shell that runs `poweroff` ends with the machine.
    machine.shell("echo kept > /home/ubuntu/file; poweroff", check=False)
    wait(lambda: in_state("stopped"), "it is stopped", seconds=30)
    cloud.ec2.start_instances(InstanceIds=[machine.id])
    wait(machine.booted, "it has booted again", seconds=30)
    assert machine.run("cat", "/home/ubuntu/file").stdout == "kept\n"


def test_an_instance_without_sshd_runs_and_refuses_connections(cloud: Cloud) -> None:
    cloud.break_next(instances.NO_SSHD)
    with _machine(cloud) as broken, pytest.raises(ConnectionRefusedError):
        socket.create_connection((broken.ip, 22), timeout=5)


def test_requests_fail_as_they_are_told_to_and_as_often(cloud: Cloud) -> None:
    here, there = list(cloud.subnets().items())[:2]
    cloud.fail(
        Fault(
            "ec2:Run*", "UnauthorizedOperation", "not here", 403, parameters={"SubnetId": here[1]}
        )
    )

    cloud.fail(Fault("iam:*", "AccessDenied", "not you", 403, times=1))
    launch = {
        "ImageId": AMI,
        "InstanceType": "m5.large",
        "MinCount": 1,
        "MaxCount": 1,
        "DryRun": True,
    }

    for subnet, code in ((here, "UnauthorizedOperation"), (there, "DryRunOperation")):
        with pytest.raises(ClientError) as refused:
            cloud.user_client("ec2").run_instances(**launch, SubnetId=subnet[1])
        assert refused.value.response["Error"]["Code"] == code

    with pytest.raises(ClientError, match="AccessDenied"):
        cloud.user_client("iam").get_role(RoleName=ROLE)

    assert cloud.user_client("iam").get_role(RoleName=ROLE)["Role"]["RoleName"] == ROLE
    cloud.heal()


def test_quotas_are_told(cloud: Cloud) -> None:
    cloud.quota("L-DB2E81BA", 8)
    quotas = cloud.client("service-quotas")
    told = quotas.get_service_quota(ServiceCode="ec2", QuotaCode="L-DB2E81BA")["Quota"]
    assert (told["QuotaName"], told["Value"]) == ("Running On-Demand G and VT instances", 8.0)
    listed = quotas.get_paginator("list_service_quotas").paginate(ServiceCode="ec2")
    assert {one["QuotaCode"] for page in listed for one in page["Quotas"]} == set(QUOTAS)
