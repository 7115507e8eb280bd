"""A cloud: the AWS API by moto, and instances that are containers with a real sshd.

Tests can request faults. dockerfiles/ec2-instance/README.md says which parts are real. Several
clouds can run at a time, each with its own network, which no packet leaves.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3

from tests.bed import aws_account, aws_api, aws_server, hosts, images, publishing
from tests.bed.aws_account import AMIS, QUOTAS
from tests.bed.aws_api import Fault, Settings
from tests.bed.aws_moto import REGION
from tests.bed.engine import BedEngine, Done
from tests.bed.instances import GONE, Instance, Planned, Player
from tests.bed.places import free_port, need

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import InstanceTypeDef


@dataclass
class Cloud:
    """A running cloud; `home` is its user's home, without files of Ray or AWS at first."""

    engine: BedEngine
    home: Path
    number: int
    port: int
    player: Player = field(init=False)
    _registry_port: int = field(default_factory=free_port)
    _baseline: set[str] = field(default_factory=set)
    _faults: list[Fault] = field(default_factory=list)
    _quotas: dict[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"trainyard-ec2-{self.number}"

    @property
    def address(self) -> str:
        """Return this machine's address in the cloud's network."""
        return f"10.{200 + self.number}.0.1"

    @property
    def network(self) -> str:
        """Return the default VPC's network; the last three quarters of it are in no subnet yet."""
        return f"10.{200 + self.number}.0.0/16"

    @property
    def url(self) -> str:
        """Return the URL of the AWS API on this machine; instances reach it at 169.254.169.254."""
        return f"http://{self.address}:{self.port}"

    @property
    def registry(self) -> str:
        """Return the address of the registry that `publish` fills.

        Instances and this machine use the same address.
        """
        return f"10.{200 + self.number}.0.3:5000"

    @property
    def files(self) -> Path:
        return self.home / "cloud"

    def environ(self) -> dict[str, str]:
        """Return the environment variables of a user of this cloud.

        `run` also removes the caller's own variables of Ray and AWS.
        """
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "bed",
            "AWS_SECRET_ACCESS_KEY": "bed",
            "AWS_DEFAULT_REGION": REGION,
            # Without credentials, boto3 would ask the metadata service of this machine: the machine
            # may be a real instance.
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": str(self.home / ".aws" / "config"),
            "AWS_SHARED_CREDENTIALS_FILE": str(self.home / ".aws" / "credentials"),
            "HOME": str(self.home),
            "TMPDIR": str(self.home / "tmp"),
            "NO_PROXY": "*",
            "no_proxy": "*",
            "RAY_USAGE_STATS_ENABLED": "0",
        }

    def run(
        self, *command: str, check: bool = True, seconds: float = 300.0, **environ: str
    ) -> Done:
        """Run a command as a user of this cloud; `environ` adds variables."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("RAY_", "AWS_"))
        }

        done = subprocess.run(
            command,
            env={**kept, **self.environ(), **environ},
            capture_output=True,
            text=True,
            timeout=seconds,
            stdin=subprocess.DEVNULL,
            cwd=self.home,
        )
        if check and done.returncode != 0:
            raise RuntimeError(
                f"{' '.join(command)} exited {done.returncode}\n{done.stdout}\n{done.stderr}"
            )

        return done

    def client(self, service: str, region: str = REGION) -> Any:
        """Return a boto3 client whose requests meet no fault and are not logged."""
        return self._client(service, region, aws_api.OWNER)

    def user_client(self, service: str, region: str = REGION) -> Any:
        """Return a boto3 client for the same user as `run`."""
        return self._client(service, region, "bed")

    def _client(self, service: str, region: str, key: str) -> Any:
        keys = {"aws_access_key_id": key, "aws_secret_access_key": "bed"}
        return boto3.client(service, region_name=region, endpoint_url=self.url, **keys)  # type: ignore[call-overload]

    @property
    def ec2(self) -> Any:
        return self.client("ec2")

    def subnets(self) -> dict[str, str]:
        """Return {zone: subnet} of the default VPC.

        All of its subnets route to the internet and assign public addresses.
        """
        return {
            subnet["AvailabilityZone"]: subnet["SubnetId"]
            for subnet in self.ec2.describe_subnets()["Subnets"]
        }

    def instances(self, *states: str, region: str = REGION, **tags: str) -> list[InstanceTypeDef]:
        """Return the instances with these tags, by default all but the terminated ones.

        Underscores in the names of tags are sent as hyphens.
        """
        ours = {name.replace("_", "-"): value for name, value in tags.items()}
        pages = self.client("ec2", region).get_paginator("describe_instances").paginate()
        found = [
            one
            for page in pages
            for reservation in page["Reservations"]
            for one in reservation["Instances"]
        ]

        return [
            instance
            for instance in found
            if ours.items()
            <= {tag["Key"]: tag["Value"] for tag in instance.get("Tags", [])}.items()
            and (
                instance["State"]["Name"] in states
                if states
                else instance["State"]["Name"] not in GONE
            )
        ]

    def container(self, instance: InstanceTypeDef) -> Instance:
        """Return a handle that runs commands on an instance."""
        name = instance["InstanceId"]
        return Instance(
            name, self.player.container(name), instance["PrivateIpAddress"], self.engine
        )

    def head(self, **tags: str) -> Instance:
        """Return a handle of the head of the cluster with these tags."""
        return self.container(self.instances("running", ray_node_type="head", **tags)[0])

    def publish(self, *names: str) -> None:
        """Push images of the engine to `registry`; start the registry if it does not run yet."""
        local = f"{self.engine.bridge_ip}:{self._registry_port}"
        publishing.publish(self.engine, local, *names, owner=hosts.this_process())
        at = ("--ip", self.registry.partition(":")[0])
        self.engine.docker(
            "network", "connect", *at, self.name, publishing.container_of(local), check=False
        )

    def fail(self, fault: Fault) -> None:
        """Apply a fault to matching requests from now on."""
        self._faults.append(replace(fault, number=time.monotonic_ns()))
        self._control()

    def heal(self) -> None:
        """Remove all faults of requests and of new instances."""
        self._faults.clear()
        self.player.planned.clear()
        self._control()

    def quota(self, code: str, value: float) -> None:
        """Set a quota of EC2 as Service Quotas reports it; launches beyond it still succeed.

        To reject a launch, use `fail`.
        """
        self._quotas[code] = value
        self._control()

    def break_next(self, script: str, *, times: int = 1, **tags: str) -> None:
        """Plan a fault: the next `times` instances with these tags run `script` as they boot.

        tests/bed/instances.py names the usual faults.
        """
        ours = {name.replace("_", "-"): value for name, value in tags.items()}
        known = frozenset(instance["InstanceId"] for instance in self.instances())
        self.player.planned.append(Planned(script, ours, times, known))

    def requests(self, action: str = "") -> list[dict[str, Any]]:
        """Return the requests so far: time, status, action, parameters, caller.

        `action`, such as ec2:RunInstances, selects those of one action.
        """
        lines = (self.files / "requests.jsonl").read_text().splitlines()
        return [one for one in map(json.loads, lines) if action in ("", one["action"])]

    def logs(self) -> str:
        """Return the logs of the API and of every running instance, for a failed test."""
        parts = ["\n".join(self.player.errors), (self.files / "server.log").read_text()[-4000:]]
        script = (
            "tail -n 60 /tmp/ray/session_latest/logs/monitor.* /var/log/sshd.log "
            "/var/log/dockerd.log 2> /dev/null"
        )
        for instance in self.instances("running"):
            parts += [
                instance["InstanceId"],
                self.container(instance).shell(script, check=False).stdout,
            ]
        return "\n".join(parts)

    def left(self) -> set[str]:
        """Return the objects created in the account, such as "security-group sg-1 (name)"."""
        return self.objects() - self._baseline

    def objects(self) -> set[str]:
        """Return all objects in the region that cost money or grant rights."""
        return aws_account.objects(self.ec2, self.client("iam"))

    def _control(self) -> None:
        quotas = {
            code: {"name": name, "value": self._quotas.get(code, value)}
            for code, (name, value) in QUOTAS.items()
        }
        part = self.files / "control.part"
        part.write_text(
            json.dumps({"faults": [asdict(fault) for fault in self._faults], "quotas": quotas})
        )
        part.rename(self.files / "control.json")


@contextmanager
def cloud(engine: BedEngine, home: Path) -> Iterator[Cloud]:
    """Give a cloud with only a default VPC, AMIs, and Ray's role.

    The cloud and all that was created in it are removed at the end.
    """
    need(("rsync", "ssh"))
    images.ensure_ec2(engine)

    with aws_server.number() as number:
        made = Cloud(engine, home, number, free_port())
        _remove(made)

        for directory in (made.files, home / "tmp", home / "instances"):
            directory.mkdir(parents=True, exist_ok=True)

        for name, subnet in (
            (made.name, f"10.{200 + number}.0.0/16"),
            (f"{made.name}-public", f"198.18.{number}.0/24"),
        ):
            gateway = subnet.partition("/")[0].removesuffix("0") + "1"
            engine.docker(
                "network", "create", "--internal", "--subnet", subnet, "--gateway", gateway, name
            )

        try:
            with _api(made):
                yield from _played(made)
        finally:
            _remove(made)


class _Account(Cloud):
    """An AWS API on loopback, without containers for its instances."""

    @property
    def address(self) -> str:
        return "127.0.0.1"

    def heal(self) -> None:
        self._faults.clear()
        self._control()


@contextmanager
def account(home: Path) -> Iterator[Cloud]:
    """Give the AWS API without any machines, for tests of steps before a launch."""
    made = _Account(BedEngine("none", home, 0), home, 0, free_port())
    for directory in (made.files, home / "tmp"):
        directory.mkdir(parents=True, exist_ok=True)
    with _api(made):
        aws_account.prepare(made.ec2, made.client("iam"))
        yield made


def _played(made: Cloud) -> Iterator[Cloud]:
    aws_account.prepare(made.ec2, made.client("iam"))
    made._baseline = made.objects()
    made.player = Player(
        made.engine,
        made.ec2,
        name=made.name,
        settings={
            "API": f"{made.address}:{made.port}",
            "NETWORK": made.network,
            "REGISTRY": made.registry,
        },
        home=made.home / "instances",
    )

    made.player.start()
    try:
        yield made
    finally:
        made.player.end()

    if made.player.errors:
        raise RuntimeError("instances could not be played:\n" + "\n".join(made.player.errors))


def _api(made: Cloud) -> AbstractContextManager[None]:
    made._control()
    public = f"198.18.{made.number}"
    return aws_server.serve(
        Settings(made.address, made.port, made.network, public, str(made.files), AMIS)
    )


def _remove(made: Cloud) -> None:
    """Remove the containers and networks of this cloud's number.

    A killed test run may have left some under the same number.
    """
    found = made.engine.docker("ps", "-aq", "--filter", f"name=^{made.name}-").stdout.split()
    registry = publishing.container_of(f"{made.engine.bridge_ip}:{made._registry_port}")
    made.engine.docker("rm", "-f", "-v", registry, *found, check=False)
    made.engine.docker("network", "rm", made.name, f"{made.name}-public", check=False)
