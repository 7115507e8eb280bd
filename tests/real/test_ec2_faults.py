"""Faults while a cluster on EC2 is made and used.

All tests use the same cluster, and each needs the one before.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

import pytest

from tests.bed import instances
from tests.bed.aws_account import AMI
from tests.bed.aws_api import Fault
from tests.bed.ec2 import Cloud
from tests.real.jobs import RESUMING, end_of, events, newest, running, write_job
from tests.real.yard import Yard, assert_one_error, wait_until, while_up

pytestmark = [pytest.mark.ec2, pytest.mark.timeout(900)]
# One node for each task: the head takes none, and the second worker is launched on demand.
CLUSTER = f"""
name: {{name}}
backend: ec2
head: {{{{cpus: 0, memory: 1GiB}}}}
workers: [{{{{name: cpu, min: 1, max: 2, cpus: 1, memory: 1GiB, idle_timeout: 5s}}}}]
ec2: {{{{region: us-west-2, ami: {AMI}, instance_type: m5.large, disk: 20GiB, use_internal_ips: true}}}}
"""
THROTTLED = ("RequestLimitExceeded", "Request limit exceeded.", 503)
JOB = "command: [python3, wait.py, '{task}']\nmatrix: {task: [0, 1]}\nresources: {cpus: 1}\n"
# Waits for a file on its node; with a checkpoint, ends at once.
WAITING = RESUMING + 'while not pathlib.Path("/tmp/go").exists():\n    time.sleep(0.2)\n'


# Rejects connections to the head, as a security group would whose members cannot reach each other.
# Short time limits, as Ray would try for minutes each time.
CUT_OFF = """
iptables -A OUTPUT -p tcp --dport 6379 -j REJECT --reject-with tcp-reset
for value in gcs_rpc_server_connect_timeout_s=1 py_gcs_connect_timeout_s=2 NUM_REDIS_GET_RETRIES=1; do
  echo RAY_$value >> /etc/environment
done
"""


@pytest.fixture(scope="module")
def yard(cloud: Cloud) -> Iterator[Yard]:
    made = Yard(cloud.home, cluster="faulty", environ=cloud.environ())
    made.write_cluster(CLUSTER)
    yield made
    cloud.heal()
    made.run("cluster.down", "--end-runs")
    assert cloud.left() == set()


def kill(yard: Yard, command: subprocess.Popen[str]) -> None:
    """Kill a command and its `ray up`, which has a session of its own, as a power cut would."""
    with suppress(ProcessLookupError):
        os.killpg(command.pid, signal.SIGKILL)
    for pid in running(str(yard.state / "ray-cluster.yaml")):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_an_up_killed_before_the_launch_of_its_head_leaves_no_instance(
    cloud: Cloud, yard: Yard
) -> None:
    cloud.fail(Fault("ec2:RunInstances", *THROTTLED, seconds=3))
    up, has_come = while_up(
        yard, lambda: bool(cloud.requests("ec2:RunInstances")), lambda up: kill(yard, up)
    )
    cloud.heal()
    assert has_come, up.stdout
    assert cloud.instances() == []


def test_a_stopped_head_is_one_error_with_its_cause_while_aws_throttles(
    cloud: Cloud, yard: Yard
) -> None:
    full = "We currently do not have sufficient m5.large capacity."
    cloud.fail(Fault("ec2:RunInstances", "InsufficientInstanceCapacity", full, 500))
    refused = yard.run("cluster.up", expect=6).stderr
    cloud.heal()
    assert_one_error(refused, "error: AWS has no m5.large left in the zones that were tried", full)

    for action in ("ec2:Describe*", "ec2:CreateTags", "iam:Get*", "sts:*"):
        cloud.fail(Fault(action, *THROTTLED, times=2))

    cloud.fail(
        Fault("ec2:RunInstances", "InternalError", "An internal error has occurred", 500, times=2)
    )
    # `ray up` reports both failures as "wait_ready timeout exceeded."
    shortly = replace(yard, environ={**yard.environ, "AUTOSCALER_NODE_START_WAIT_S": "6"})
    refused = shortly.run("cluster.up", "--set", "ec2.user=root", expect=3).stderr
    assert_one_error(refused, "error: the head rejects the login as root")
    # For another user Ray replaces the head.
    cloud.break_next(instances.NO_SSHD, ray_node_type="head")
    refused = shortly.run("cluster.up", expect=6).stderr
    assert_one_error(refused, "error: the head cannot be reached by SSH")
    cloud.head().shell("/usr/sbin/sshd -E /var/log/sshd.log")


def test_up_killed_during_the_head_s_setup_or_a_worker_s_start_continues(
    cloud: Cloud, yard: Yard
) -> None:
    head = cloud.head().id
    moments: dict[str, Callable[[], bool]] = {
        "the head is set up": lambda: bool(
            cloud.instances("running", ray_node_status="setting-up")
        ),
        "a worker is there": lambda: bool(cloud.instances("running", ray_node_type="worker")),
    }
    for what, came in moments.items():
        up, has_come = while_up(yard, came, lambda up: kill(yard, up))
        assert has_come, f"{what}: {up.stdout}"
    assert [each["InstanceId"] for each in cloud.instances(ray_node_type="head")] == [head]


def test_without_its_head_a_cluster_is_clearly_not_up(cloud: Cloud, yard: Yard) -> None:
    cloud.ec2.terminate_instances(InstanceIds=[cloud.head().id])
    now = yard.json("cluster.status")
    assert (now["state"], now["seen"].split(";")[0]) == ("partial", "head: no instance")
    write_job(yard, "waiting", JOB, wait=WAITING)
    refused = yard.run("train.dispatch", "waiting", expect=4).stderr
    assert_one_error(refused, "error: cluster faulty is not up", "cluster.up")


def test_up_repairs_it_and_names_a_worker_that_does_not_reach_the_head(
    cloud: Cloud, yard: Yard
) -> None:
    before = {each["InstanceId"] for each in cloud.instances()}
    cloud.break_next(CUT_OFF, ray_node_type="worker")
    refused = yard.run("cluster.up", expect=6).stderr
    (worker,) = cloud.instances(ray_node_type="worker")
    assert_one_error(
        refused,
        f"error: cpu-{worker['InstanceId'][-8:]} does not reach the head, {cloud.head().ip}",
    )
    cloud.ec2.terminate_instances(InstanceIds=[worker["InstanceId"]])
    yard.run("cluster.up")
    assert sorted(yard.states().values()) == ["up", "up"]
    assert not before & {each["InstanceId"] for each in cloud.instances()}


def test_a_run_makes_the_head_launch_nodes_and_outlives_an_instance(
    cloud: Cloud, yard: Yard
) -> None:
    command = yard.start("train.dispatch", "waiting", "--skip-smoke")

    def both_run() -> bool:
        return len(list(yard.results.glob("waiting-*/logs/*.1.log"))) == 2

    try:
        wait_until(
            lambda: command.poll() is not None or both_run(), seconds=240, what="both tasks run"
        )
        assert command.poll() is None, end_of(command)
        time.sleep(5)  # docs promise the next attempt all that was written 5 s before the loss
        workers = {
            f"cpu-{each['InstanceId'][-8:]}": each
            for each in cloud.instances("running", ray_node_type="worker")
        }
        assert len(workers) == 2
        lost, stays = [
            event for event in events(newest(yard)) if event["event"] == "attempt-started"
        ]
        cloud.ec2.terminate_instances(InstanceIds=[workers[lost["node"]]["InstanceId"]])
        log = newest(yard) / "logs" / f"{lost['task']}.2.log"
        wait_until(
            lambda: log.exists() and log.read_text() == "resumed\n",
            seconds=240,
            what="it goes on elsewhere",
        )

        cloud.container(workers[stays["node"]]).shell("touch /tmp/go")
        code, output = end_of(command)
    finally:
        command.kill()

    assert code == 0, output
    ended = [one["outcome"] for one in events(newest(yard)) if one["event"] == "attempt-ended"]
    assert sorted(ended) == ["lost", "succeeded", "succeeded"]


def test_workers_that_are_idle_end_and_the_cluster_is_good_with_the_fewest(
    cloud: Cloud, yard: Yard
) -> None:
    wait_until(
        lambda: len(cloud.instances(ray_node_type="worker")) == 1,
        seconds=120,
        what="one worker is left",
    )
    assert not any(step["changed"] for step in yard.json("cluster.up")["steps"])


def test_a_dead_autoscaler_is_told(cloud: Cloud, yard: Yard) -> None:
    assert "wrote its last line" in yard.json("cluster.status")["remark"]
    cloud.head().shell(
        "kill -9 $(grep -lsz '[a]utoscaler/v2/monitor.py' /proc/[0-9]*/cmdline | cut -d/ -f3)"
    )
    assert "the autoscaler on the head is dead" in yard.json("cluster.status")["remark"]


def test_down_that_was_killed_is_repeated(cloud: Cloud, yard: Yard) -> None:
    cloud.fail(
        Fault("ec2:DeleteSecurityGroup", "DependencyViolation", "resource has a dependent object")
    )
    down = yard.start("cluster.down", as_leader=True)

    try:
        wait_until(
            lambda: bool(cloud.requests("ec2:DeleteSecurityGroup")),
            seconds=120,
            what="it is removed",
        )
    finally:
        kill(yard, down)

    cloud.heal()
    assert cloud.instances() == []
    assert cloud.left()
    yard.run("cluster.down")
    assert cloud.left() == set()
