"""The document that Ray's autoscaler gets on EC2."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ray.autoscaler._private.util import prepare_config, validate_config

from trainyard.backends.ec2 import desired, naming
from trainyard.backends.ec2.desired import Inputs
from trainyard.backends.ec2.location import Location
from trainyard.errors import RequestError
from trainyard.seams.aws import Aws
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.ec2 import Ec2Section
from trainyard.spec.load import load_cluster

PARAMETER = "/aws/service/some/ami-id"
FOUND = {"ImageId": "ami-1", "RootDeviceName": "/dev/xvda"}
LOCATION = Location(
    "lab",
    Aws({}, region="us-west-2"),
    Path("/state"),
    "me:/x",
    Ec2Section(key_name="key", key_file="/k"),
    {},
)
INPUTS = Inputs(LOCATION, "sg-1", {PARAMETER: FOUND}, ["subnet-1"])
ECR = "123456789012.dkr.ecr.eu-west-1.amazonaws.com"
IMAGE = replace(INPUTS, image=f"{ECR}/lab@sha256:aa")


def spec(**section: Any) -> ClusterSpec:
    workers = [
        {"name": "cpu", "count": 2, "cpus": 2},
        {"name": "gpu", "max": 3, "gpus": 1, "idle_timeout": 600},
    ]
    return ClusterSpec.model_validate(
        {"name": "lab", "backend": "ec2", "head": {"cpus": 1}, "workers": workers, "ec2": section}
    )


def node(made: dict[str, Any], group: str) -> dict[str, Any]:
    config: dict[str, Any] = made["available_node_types"][group]["node_config"]
    return config


@pytest.mark.parametrize("inputs", [INPUTS, IMAGE])
def test_ray_accepts_the_document_and_adds_no_defaults_of_its_own(inputs: Inputs) -> None:
    made = desired.document(spec(), inputs)
    complete = prepare_config(made)
    validate_config(complete)
    assert {key: complete[key] for key in made} == made | {
        # Ray's own way to join them.
        "head_setup_commands": made["setup_commands"] + made["head_setup_commands"],
        "worker_setup_commands": made["setup_commands"],
    }


def test_the_example_that_we_ship_is_what_ray_accepts() -> None:
    example = load_cluster(Path(__file__).parents[2] / "clusters" / "ec2.yaml").spec
    validate_config(prepare_config(desired.document(example, INPUTS)))


def test_groups_are_node_types_with_their_bounds_and_resources() -> None:
    types = desired.document(spec(), INPUTS)["available_node_types"]
    assert [(name, kind["min_workers"], kind["max_workers"]) for name, kind in types.items()] == [
        ("head", 0, 0),
        ("cpu", 2, 2),
        ("gpu", 0, 3),
    ]
    assert types["gpu"]["resources"] == {"GPU": 1}
    assert types["gpu"]["idle_timeout_s"] == 600
    assert types["cpu"]["labels"] == {"ray.io/node-group": "cpu"}


def test_each_group_has_its_resources_labels_and_parameters_of_ray() -> None:
    file = ClusterSpec.model_validate(
        {
            "name": "lab",
            "backend": "ec2",
            "head": {"ray_start": {"metrics-export-port": 8080}},
            "workers": [
                {"name": "cpu"},
                {
                    "name": "gpu",
                    "resources": {"A100": 2},
                    "labels": {"zone": "a"},
                    "ray_start": {"log-style": "a b"},
                },
            ],
        }
    )

    made = desired.document(file, INPUTS)
    validate_config(prepare_config(made))
    kind = made["available_node_types"]["gpu"]
    assert (kind["resources"], kind["labels"]) == (
        {"GPU": 0, "A100": 2},
        {"ray.io/node-group": "gpu", "zone": "a"},
    )
    assert made["head_start_ray_commands"][0].endswith(" --metrics-export-port=8080")
    (command,) = made["worker_start_ray_commands"]
    case = (
        "set --; case \"$RAY_NODE_TYPE_NAME\" in gpu) set -- '--log-style=a b' ;; esac; ray start "
    )
    assert case in command and command.endswith(' "$@"')
    assert "set --" not in desired.document(spec(), INPUTS)["worker_start_ray_commands"][0]


def test_instances_are_on_demand_by_default_and_all_their_parts_are_tagged() -> None:
    made = desired.document(
        spec(ami="ami-0123456789", groups={"gpu": {"spot": True, "disk": 2**30 * 300}}), INPUTS
    )
    assert made["provider"]["cache_stopped_nodes"] is False
    assert "InstanceMarketOptions" not in node(made, "cpu")
    assert node(made, "gpu")["InstanceMarketOptions"] == {"MarketType": "spot"}
    assert node(made, "gpu")["BlockDeviceMappings"][0]["Ebs"]["VolumeSize"] == 300
    assert node(made, "cpu")["IamInstanceProfile"] == {"Name": "trainyard-lab-us-west-2"}
    specifications = node(made, "cpu")["TagSpecifications"]
    assert [each["ResourceType"] for each in specifications] == [
        "instance",
        "volume",
        "network-interface",
    ]

    assert (
        node(made, "cpu")["ImageId"]
        == naming.read(specifications[0]["Tags"])[naming.AMI]
        == "ami-0123456789"
    )

    assert all(naming.read(each["Tags"])[naming.CLUSTER] == "lab" for each in specifications)


def test_a_subnet_and_the_security_group_are_those_of_every_node() -> None:
    interface = {
        "DeviceIndex": 0,
        "SubnetId": "subnet-12345678",
        "Groups": ["sg-1"],
        "DeleteOnTermination": True,
    }
    for internal in (True, False):
        made = desired.document(spec(subnet="subnet-12345678", use_internal_ips=internal), INPUTS)
        for group in ("head", "cpu", "gpu"):
            assert node(made, group)["NetworkInterfaces"] == [
                interface | {"AssociatePublicIpAddress": not internal}
            ]
            assert "SecurityGroupIds" not in node(made, group)


def test_resolved_ids_are_written_out_and_tags_keep_the_ami_parameter() -> None:
    # Else Ray would resolve it again, and EC2 for each worker: another head, workers of another AMI.
    config = node(desired.document(spec(ami=PARAMETER), INPUTS), "cpu")
    assert (config["SecurityGroupIds"], config["SubnetIds"], config["ImageId"]) == (
        ["sg-1"],
        ["subnet-1"],
        "ami-1",
    )
    assert config["BlockDeviceMappings"][0]["DeviceName"] == "/dev/xvda"
    tags = naming.read(config["TagSpecifications"][0]["Tags"])
    assert (tags[naming.AMI], tags[naming.SUBNETS]) == (PARAMETER, "subnet-1")


def test_an_image_runs_by_digest_with_gpu_options_and_a_fresh_login() -> None:
    made = desired.document(spec(shm_size=2**30, docker_options=["--ipc=host"]), IMAGE)
    docker = made["docker"]
    assert (docker["image"], docker["pull_before_run"]) == (IMAGE.image, False)
    assert docker["run_options"][-2:] == ["--shm-size=1073741824", "--ipc=host"]
    assert made["available_node_types"]["gpu"]["docker"] == {"worker_run_options": ["--gpus=all"]}
    assert "docker" not in made["available_node_types"]["cpu"]
    commands = made["initialization_commands"]
    assert "cloud-init status --wait" in commands[0]
    assert any(
        "ecr get-login-password --region eu-west-1 | docker login" in command
        for command in commands
    )
    assert f"docker image inspect {IMAGE.image}" in commands[-1]
    assert any(command.endswith("|| sudo snap install aws-cli --classic") for command in commands)


def test_a_group_may_run_another_image_than_the_head() -> None:
    other = "registry.example.com/isaac@sha256:bb"
    inputs = replace(IMAGE, images={"gpu": other})
    made = desired.document(spec(ray={"initialization_commands": ["echo mine"]}), inputs)
    validate_config(prepare_config(made))
    types = made["available_node_types"]
    assert made["docker"]["image"] == IMAGE.image
    assert types["gpu"]["docker"] == {"worker_image": other, "worker_run_options": ["--gpus=all"]}
    assert "docker" not in types["cpu"] and "initialization_commands" not in types["cpu"]
    commands = types["gpu"]["initialization_commands"]
    assert (commands[0], commands[-1]) == (made["initialization_commands"][0], "echo mine")
    assert f"docker image inspect {other}" in commands[-2]
    # Its registry is none of AWS'.
    assert not any("ecr" in command for command in commands)
    tags = naming.read(node(made, "gpu")["TagSpecifications"][0]["Tags"])
    assert tags[naming.IMAGE] == other


@pytest.mark.parametrize("image", ["registry.example.com/isaac@sha256:bb", ""])
def test_a_node_types_commands_follow_those_of_trainyard(image: str) -> None:
    own = {"initialization_commands": ["echo own"], "worker_setup_commands": ["echo setup"]}
    inputs = replace(IMAGE, images={"gpu": image} if image else {})
    added = {"initialization_commands": ["echo all"], "available_node_types": {"gpu": own}}
    made = desired.document(spec(ray=added), inputs)
    validate_config(prepare_config(made))
    types = made["available_node_types"]
    *before, last = types["gpu"]["initialization_commands"]
    # In Ray, a type's commands replace those of the document.
    assert (before[0], last) == (made["initialization_commands"][0], "echo own")
    assert f"docker image inspect {image or IMAGE.image}" in before[-1]
    assert types["gpu"]["worker_setup_commands"] == [*made["setup_commands"], "echo setup"]
    assert not own.keys() & types["cpu"].keys()


def test_token_and_variables_are_where_the_nodes_user_finds_them() -> None:
    on_host, in_image = (desired.document(spec(), inputs) for inputs in (INPUTS, IMAGE))
    assert on_host["file_mounts"] == {"~/.trainyard": "/state/mounted"}
    assert in_image["file_mounts"] == {"/run/trainyard": "/state/mounted"}
    for made, place in ((on_host, "~/.trainyard"), (in_image, "/run/trainyard")):
        for start in (*made["head_start_ray_commands"], *made["worker_start_ray_commands"]):
            assert start.startswith(f". {place}/environment; ")


def test_additions_of_the_file_are_merged_and_lists_are_extended() -> None:
    added = {
        "setup_commands": ["echo mine"],
        "available_node_types": {"gpu": {"node_config": {"EbsOptimized": True}}},
    }
    plain, made = desired.document(spec(), INPUTS), desired.document(spec(ray=added), INPUTS)
    assert made["setup_commands"] == [*plain["setup_commands"], "echo mine"]
    before = node(plain, "gpu") | {"TagSpecifications": [], "EbsOptimized": True}
    assert node(made, "gpu") | {"TagSpecifications": []} == before


def test_files_that_are_not_here_are_named(tmp_path: Path) -> None:
    mounts = {"/home/ubuntu/maps": str(tmp_path / "maps"), "/home/ubuntu/here": str(tmp_path)}
    with pytest.raises(RequestError) as caught:
        desired.document(spec(ray={"file_mounts": mounts}), INPUTS)
    assert [str(problem) for problem in caught.value.problems] == [
        (
            "ec2.ray.file_mounts./home/ubuntu/maps: no such file or directory here: "
            f"{tmp_path / 'maps'}"
        )
    ]


def test_a_node_type_without_a_group_is_refused() -> None:
    with pytest.raises(
        RequestError, match="available_node_types has big, which the cluster file has no group for"
    ):
        desired.document(spec(ray={"available_node_types": {"big": {}}}), INPUTS)


@pytest.mark.parametrize(
    ("added", "message"),
    [
        ({"available_node_types": None}, "ec2.ray.available_node_types must be keys, not None"),
        (
            {"available_node_types": {"cpu": 1}},
            "ec2.ray.available_node_types.cpu must be keys, not 1",
        ),
        (
            {"available_node_types": {"cpu": {"initialization_commands": "ls"}}},
            "available_node_types.cpu.initialization_commands must be a list, not 'ls'",
        ),
        ({"setup_commands": "ls"}, "ec2.ray.setup_commands must be a list, not 'ls'"),
    ],
)
def test_an_addition_of_another_type_than_the_documents_is_refused(
    added: dict[str, Any], message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        desired.document(spec(ray=added), INPUTS)


def test_a_change_of_workers_keeps_the_heads_fingerprint() -> None:
    first = desired.fingerprints(desired.document(spec(), INPUTS), "env")
    more = desired.document(spec(groups={"gpu": {"spot": True}}), INPUTS)
    assert desired.fingerprints(more, "env")[naming.HEAD_FROM] == first[naming.HEAD_FROM]
    assert desired.fingerprints(more, "env")[naming.MADE_FROM] != first[naming.MADE_FROM]
    head = desired.document(spec(groups={"head": {"disk": 2**40}}), INPUTS)
    assert desired.fingerprints(head, "env")[naming.HEAD_FROM] != first[naming.HEAD_FROM]
    assert desired.fingerprints(desired.document(spec(), INPUTS), "other") != first
    elsewhere = replace(INPUTS, location=replace(LOCATION, state=Path("/other")))
    assert desired.fingerprints(desired.document(spec(), elsewhere), "env") == first


def changed(**group: Any) -> ClusterSpec:
    return spec().model_copy(update={"workers": (spec().workers[0].model_copy(update=group),)})


@pytest.mark.parametrize(
    "other",
    [
        *(changed(cpus=1), changed(memory=2**30), changed(gpus=1), changed(name="gone")),
        *(
            spec(disk=2**40),
            spec(ami="ami-0123456789"),
            spec(instance_type="m5.xlarge"),
            spec(spot=True),
        ),
    ],
    ids=["cpus", "memory", "gpus", "name", "disk", "ami", "instance_type", "spot"],
)
def test_a_group_of_other_sizes_has_other_instances(other: ClusterSpec) -> None:
    before, after = (
        desired.node_from(desired.document(each, INPUTS), "cpu") for each in (spec(), other)
    )
    assert before != after


def test_a_group_of_more_or_fewer_nodes_keeps_its_instances() -> None:
    more = changed(count=5, idle_timeout=60)
    before, after = (
        desired.node_from(desired.document(each, INPUTS), "cpu") for each in (spec(), more)
    )
    assert before == after != ""


def test_variables_are_quoted_and_the_token_is_in_no_document() -> None:
    made = spec().model_copy(update={"env": {"NAME": "it's $HOME"}})
    text = desired.environment(made, "")
    assert "export NAME='it'\"'\"'s $HOME'" in text.splitlines()
    assert "export RAY_AUTH_MODE=token" in text
    assert "it's" not in json.dumps(desired.document(made, INPUTS))


def test_the_role_of_the_nodes_launches_and_ends_no_instances_of_others() -> None:
    statements = json.loads(desired.policy("lab", "arn:aws:iam::1:role/trainyard-lab"))["Statement"]
    ending = next(each for each in statements if "ec2:TerminateInstances" in each["Action"])
    assert ending["Condition"] == {"StringEquals": {"ec2:ResourceTag/trainyard-cluster": "lab"}}
    launching = [each for each in statements if each["Action"] == "ec2:RunInstances"]
    assert [each.get("Condition") for each in launching] == [
        None,
        {"StringEquals": {"aws:RequestTag/trainyard-cluster": "lab"}},
    ]
    assert launching[0]["NotResource"] == launching[1]["Resource"] == "arn:*:ec2:*:*:instance/*"
    passing = next(each for each in statements if each["Action"] == "iam:PassRole")
    assert passing["Resource"] == "arn:aws:iam::1:role/trainyard-lab"
