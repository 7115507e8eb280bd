"""A cluster of plain `ray up`: not touched by Trainyard's commands, then adopted."""

from __future__ import annotations

from tests.bed.aws_account import AMI
from tests.bed.ec2 import Cloud
from tests.real import plain_ray_up
from tests.real.yard import Yard, assert_one_error


def test_a_cluster_of_plain_ray_up_is_never_touched_unless_asked(
    cloud: Cloud,
) -> None:
    with plain_ray_up.cluster(cloud) as head:
        plain_ray_up.wait_for_worker(cloud)
        _adopted(cloud, head.id)


def _adopted(cloud: Cloud, head: str) -> None:
    def plain() -> list[str]:
        return sorted(each["InstanceId"] for each in cloud.instances(ray_cluster_name="plain"))

    yard = Yard(cloud.home / "yard", cluster="plain", environ=cloud.environ())
    section = f"{{{{ami: {AMI}, instance_type: m5.large, use_internal_ips: true}}}}"
    yard.write_cluster(f"name: {{name}}\nbackend: ec2\nec2: {section}\n")
    before = plain()

    for command in ("cluster.up", "cluster.down"):
        refused = yard.run(command, expect=2).stderr
        assert (
            "error: a cluster plain that Trainyard did not make is in this account and region"
            in refused
        )
        assert "cluster.down --adopt" in refused

    assert head in before == plain()
    # The head of `ray up` has another SSH key: this user cannot ask it for runs, and nothing is changed
    # unasked.
    for words in (("cluster.up", "--recreate"), ("cluster.down",)):
        assert (
            "error: whether runs are active is unknown"
            in yard.run(*words, "--adopt", expect=2).stderr
        )
        assert "is in this account and region" in yard.run(*words, expect=2).stderr

    assert "that Trainyard did not make" in yard.json("cluster.status")["remark"]
    refused = yard.run("cluster.up", "--adopt", "--end-runs", expect=2).stderr
    assert_one_error(
        refused,
        "the cluster plain of `ray up` would be replaced",
        "cluster.up --adopt --recreate\n",
    )
    assert "that Trainyard did not make" in yard.json("cluster.status")["remark"]
    assert before == plain()
    yard.run("cluster.down", "--adopt", "--end-runs", seconds=300)
    assert plain() == []
