"""The player: it runs a container for each running instance of the bed's AWS.

It removes the container when the instance is terminated.
"""

from __future__ import annotations

import base64
import shlex
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bed import images
from tests.bed.engine import BedEngine, Done
from tests.bed.host import RIGHTS
from tests.bed.hosts import each

if TYPE_CHECKING:
    from mypy_boto3_ec2.client import EC2Client
    from mypy_boto3_ec2.type_defs import InstanceTypeDef

PAUSE = 0.5
GONE = ("shutting-down", "terminated")
STOPPED = ("stopping", "stopped")
# A fault of an instance: a line of shell that its boot script runs before sshd starts.
NO_SSHD = "SSHD=no"


@dataclass
class Planned:
    """A fault for the next `times` instances that have these tags.

    The instances `known` existed before: on a busy machine they may not have booted yet.
    """

    script: str
    tags: dict[str, str]
    times: int
    known: frozenset[str]


@dataclass(frozen=True)
class Instance:
    """A running instance: its container, and its private address."""

    id: str
    container: str
    ip: str
    engine: BedEngine

    def run(self, *command: str, check: bool = True, seconds: float = 300.0) -> Done:
        """Run a command on the instance as root, without SSH."""
        return self.engine.docker("exec", self.container, *command, check=check, seconds=seconds)

    def shell(self, script: str, *, check: bool = True) -> Done:
        return self.run("sh", "-euc", script, check=check)

    def booted(self) -> bool:
        return self.run("test", "-e", "/run/cloud-init-done", check=False).returncode == 0


class Player:
    """A thread that polls the instances of the API, and makes containers follow their states.

    An instance whose container cannot start is terminated, as EC2 does where it cannot launch one;
    `errors` has the reason.
    """

    def __init__(
        self, engine: BedEngine, ec2: EC2Client, *, name: str, settings: dict[str, str], home: Path
    ) -> None:
        self.planned: list[Planned] = []
        self.errors: list[str] = []
        self._engine = engine
        self._ec2 = ec2
        self._name = name
        self._settings = settings
        self._home = home
        self._up: dict[str, bool] = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._play, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Stop the thread, and remove every container."""
        self._end.set()
        self._thread.join()
        each(self._remove, self._up)

    def container(self, instance: str) -> str:
        return f"{self._name}-{instance}"

    def _play(self) -> None:
        while not self._end.wait(PAUSE):
            try:
                self._follow()
            except Exception as error:
                self.errors.append(f"{type(error).__name__}: {error}")

    def _follow(self) -> None:
        pages = self._ec2.get_paginator("describe_instances").paginate()
        known = {
            instance["InstanceId"]: instance
            for page in pages
            for reservation in page["Reservations"]
            for instance in reservation["Instances"]
        }

        states = {name: instance["State"]["Name"] for name, instance in known.items()}
        each(self._remove, [name for name in self._up if states.get(name, "terminated") in GONE])
        each(self._stop, [name for name, up in self._up.items() if up and states[name] in STOPPED])
        running = [known[name] for name, state in states.items() if state == "running"]
        each(
            self._end_by_itself,
            [one for one in running if self._up.get(one["InstanceId"]) and not self._runs(one)],
        )
        each(self._launch, [one for one in running if not self._up.get(one["InstanceId"])])

    def _runs(self, instance: InstanceTypeDef) -> bool:
        asked = (
            "inspect",
            "--format",
            "{{.State.Running}}",
            self.container(instance["InstanceId"]),
        )
        return self._engine.docker(*asked).stdout.strip() == "true"

    def _launch(self, instance: InstanceTypeDef) -> None:
        name = instance["InstanceId"]
        try:
            if name not in self._up:
                self._create(instance)
            self._engine.docker("start", self.container(name))
            self._up[name] = True
        except Exception as error:
            # The start may have failed because the instance was terminated meanwhile, with its key.
            if self._state(name) not in GONE:
                self.errors.append(f"{name}: {error}")
                self._ec2.terminate_instances(InstanceIds=[name])
            self._remove(name)

    def _state(self, name: str) -> str:
        found = self._ec2.describe_instances(InstanceIds=[name])["Reservations"]
        return found[0]["Instances"][0]["State"]["Name"]

    def _create(self, instance: InstanceTypeDef) -> None:
        name, dns = instance["InstanceId"], instance["PrivateDnsName"]
        files = self._home / name
        files.mkdir(parents=True)
        kind = self._ec2.describe_instance_types(InstanceTypes=[instance["InstanceType"]])[
            "InstanceTypes"
        ][0]
        self._write(
            instance,
            files,
            gpus=sum(gpu["Count"] for gpu in kind.get("GpuInfo", {}).get("Gpus", [])),
        )

        self._engine.docker(
            *("create", "--name", self.container(name), "--hostname", dns, "--network", self._name),
            *("--ip", instance["PrivateIpAddress"]),
            *(
                "--tmpfs",
                "/run:exec,mode=755",
                "--shm-size",
                "2g",
                "--memory",
                f"{kind['MemoryInfo']['SizeInMiB']}m",
            ),
            *("--volume", f"{files}:/etc/bed:ro", *RIGHTS, images.EC2_INSTANCE),
        )

        if "PublicIpAddress" in instance:
            address = ("--ip", instance["PublicIpAddress"])
            self._engine.docker(
                "network", "connect", *address, f"{self._name}-public", self.container(name)
            )

    def _write(self, instance: InstanceTypeDef, files: Path, *, gpus: int) -> None:
        """Write the files that the instance's boot reads."""
        name = instance["InstanceId"]
        image = self._ec2.describe_images(ImageIds=[instance["ImageId"]])["Images"][0]
        has = image["Description"]
        settings = {**self._settings, "DOCKER": "yes" if "Docker" in has else "no"}
        settings["GPUS"] = str(gpus if "Driver" in has else 0)
        lines = [f"{key}={shlex.quote(value)}" for key, value in settings.items()]
        (files / "environ").write_text("\n".join(lines) + "\n")
        (files / "script").write_text(self._script(instance))
        keys = ""

        if "KeyName" in instance:
            found = self._ec2.describe_key_pairs(
                KeyNames=[instance["KeyName"]], IncludePublicKey=True
            )
            keys = found["KeyPairs"][0]["PublicKey"]

        (files / "authorized_keys").write_text(keys + "\n")
        given = self._ec2.describe_instance_attribute(InstanceId=name, Attribute="userData")[
            "UserData"
        ].get("Value", "")
        (files / "user-data").write_bytes(base64.b64decode(given))

    def _script(self, instance: InstanceTypeDef) -> str:
        tags = {tag["Key"]: tag["Value"] for tag in instance.get("Tags", [])}
        for planned in self.planned:
            is_next = instance["InstanceId"] not in planned.known
            if is_next and planned.times and planned.tags.items() <= tags.items():
                planned.times -= 1
                return planned.script + "\n"
        return "\n"

    def _stop(self, name: str) -> None:
        self._engine.docker("stop", "--time", "2", self.container(name))
        self._up[name] = False

    def _remove(self, name: str) -> None:
        self._engine.docker("rm", "-f", "-v", self.container(name), check=False)
        self._up.pop(name, None)

    def _end_by_itself(self, instance: InstanceTypeDef) -> None:
        """Report to EC2 an instance that was shut down from inside."""
        name = instance["InstanceId"]
        asked = self._ec2.describe_instance_attribute(
            InstanceId=name, Attribute="instanceInitiatedShutdownBehavior"
        )
        self._up[name] = False
        if asked["InstanceInitiatedShutdownBehavior"].get("Value") == "terminate":
            self._ec2.terminate_instances(InstanceIds=[name])
        else:
            self._ec2.stop_instances(InstanceIds=[name])
