"""The section `ec2` of the cluster file."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainyard.errors import RequestError
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.load import load_cluster


def problems(tmp_path: Path, section: str, *, rest: str = "") -> list[str]:
    file = tmp_path / "lab.yaml"
    file.write_text(f"name: lab\nbackend: ec2\n{rest}ec2: {section}\n")
    with pytest.raises(RequestError) as refused:
        load_cluster(file)
    return [str(problem).partition(" ")[2] for problem in refused.value.problems]


def test_a_setting_of_a_group_overrides_that_of_all_groups() -> None:
    section = {
        "instance_type": "m5.xlarge",
        "spot": True,
        "groups": {"head": {"spot": False, "disk": 2**30}},
    }
    spec = ClusterSpec.model_validate({"name": "lab", "backend": "ec2", "ec2": section})
    head, worker = spec.ec2.instances("head"), spec.ec2.instances("gpu")
    assert (head.instance_type, head.spot, head.disk) == ("m5.xlarge", False, 2**30)
    assert (worker.instance_type, worker.spot) == ("m5.xlarge", True)


def test_ids_are_looked_at(tmp_path: Path) -> None:
    section = (
        "{region: oregon, subnet: sg-0123456789abcdef0, zones: [us-west-2a], groups: {gpu: "
        "{ami: ubuntu}}}"
    )
    assert problems(tmp_path, section) == [
        'ec2.region: must be a region such as us-west-2, got "oregon"',
        'ec2.subnet: must be an id such as subnet-0123456789abcdef0, got "sg-0123456789abcdef0"',
        "ec2.groups.gpu.ami: must be an id such as ami-0123456789abcdef0, or a parameter of "
        "Systems Manager such as "
        '/aws/service/..., got "ubuntu"',
    ]


def test_ssh_from_is_a_network_as_aws_stores_it(tmp_path: Path) -> None:
    section = {"ssh_from": ["203.0.113.5/24", "192.0.2.1/32"]}
    spec = ClusterSpec.model_validate({"name": "lab", "backend": "ec2", "ec2": section})
    assert spec.ec2.ssh_from == ("203.0.113.0/24", "192.0.2.1/32")
    assert problems(tmp_path, "{ssh_from: [300.0.0.0/8]}") == [
        'ec2.ssh_from.0: must be addresses such as 203.0.113.0/24, got "300.0.0.0/8"'
    ]


def test_an_option_of_docker_is_one_word(tmp_path: Path) -> None:
    assert problems(tmp_path, '{docker_options: ["-v /data:/data", --label=a=b c, -v, a b]}') == [
        "ec2.docker_options.0: must be one word: write --ulimit=nofile=65536:65536, or two "
        'entries, got "-v /data:/data"'
    ]


def test_groups_are_those_of_the_file(tmp_path: Path) -> None:
    assert problems(tmp_path, "{groups: {gpu: {}}}") == [
        "ec2.groups.gpu: is no group of this file (it has: head)"
    ]


def test_an_added_key_must_be_known_and_decided_by_nothing_else(
    tmp_path: Path,
) -> None:
    section = "{ray: {setup_comands: [], max_workers: 3, provider: {cache_stopped_nodes: true}}}"
    assert problems(tmp_path, section) == [
        (
            "ec2.ray.setup_comands: is not a key of Ray's file that can be added; did you mean "
            "'setup_commands'?"
        ),
        "ec2.ray.max_workers: cannot be added: it follows from count and max of the groups",
        "ec2.ray.provider.cache_stopped_nodes: cannot be added: it follows from Trainyard, "
        "which always sets false: stopped instances continue to cost",
    ]


@pytest.mark.parametrize(
    ("kind", "path", "source"),
    [
        (
            "{node_config: {InstanceType: c5.4xlarge}}",
            "node_config.InstanceType",
            "ec2.instance_type",
        ),
        ("{node_config: {BlockDeviceMappings: []}}", "node_config.BlockDeviceMappings", "ec2.disk"),
        ("{node_config: {TagSpecifications: []}}", "node_config.TagSpecifications", "ec2.tags"),
        (
            "{node_config: {Placement: {AvailabilityZone: x}}}",
            "node_config.Placement.AvailabilityZone",
            "ec2.zones",
        ),
        ("{docker: {worker_image: isaac}}", "docker.worker_image", "image of the group"),
        ("{node_config: {ImageId: ami-1}}", "node_config.ImageId", "ec2.ami"),
        (
            "{node_config: {InstanceMarketOptions: {}}}",
            "node_config.InstanceMarketOptions",
            "ec2.spot",
        ),
        ("{max_workers: 9}", "max_workers", "count and max of the group"),
        ("{resources: {CPU: 64}}", "resources", "cpus, gpus, memory and resources of the group"),
    ],
)
def test_a_key_of_a_node_type_that_the_plan_decides_cannot_be_added(
    tmp_path: Path, kind: str, path: str, source: str
) -> None:
    found = problems(tmp_path, f"{{ray: {{available_node_types: {{head: {kind}}}}}}}")
    assert found == [
        f"ec2.ray.available_node_types.head.{path}: cannot be added: it follows from {source}"
    ]


def test_the_token_cannot_be_left_out(tmp_path: Path) -> None:
    assert problems(tmp_path, "{}", rest="auth: none\n") == [
        "auth: must be 'token' with the backend ec2: every instance of the security group "
        "reaches the dashboard, "
        'got "none"'
    ]


@pytest.mark.parametrize(
    ("added", "path"),
    [
        (
            "{available_node_types: {head: {node_config: {LaunchTemplate: {}}}}}",
            "available_node_types.head.node_config",
        ),
        (
            "{available_node_types: {a: {node_config: {CpuOptions: {}}}}}",
            "available_node_types.a.node_config",
        ),
        ("{available_node_types: {gpu: {setup_commands: []}}}", "available_node_types.gpu"),
        ("{provider: {Region: eu-west-1}}", "provider"),
        ("{docker: {images: x}}", "docker"),
    ],
)
def test_an_unlisted_key_is_refused_in_every_section_of_rays_file(
    tmp_path: Path, added: str, path: str
) -> None:
    (found,) = problems(tmp_path, f"{{ray: {added}}}")
    assert found.startswith(f"ec2.ray.{path}.")
    assert "is not a key of Ray's file that can be added" in found


def test_the_case_of_a_key_counts_and_the_right_one_is_named(tmp_path: Path) -> None:
    added = (
        "{available_node_types: {head: {node_config: {ebsOptimized: true, Placement: "
        "{Tenancy: dedicated}}}}}"
    )
    at = "ec2.ray.available_node_types.head.node_config"
    assert problems(tmp_path, f"{{ray: {added}}}") == [
        (
            f"{at}.ebsOptimized: is not a key of Ray's file that can be added; did you mean "
            "'EbsOptimized'?"
        ),
        f"{at}.Placement.Tenancy: is not a key of Ray's file that can be added",
    ]
