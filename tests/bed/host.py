"""A container that plays a remote Docker host: a real sshd, and a Docker engine inside."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bed import images
from tests.bed.engine import BedEngine, Done
from tests.bed.places import run

# `docker run --privileged` fails where the outer container lacks CAP_SYS_RESOURCE; these options
# work there, too.
RIGHTS = (
    *("--cap-add", "ALL", "--cap-drop", "SYS_RESOURCE"),
    *("--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined"),
    *(
        "--security-opt",
        "systempaths=unconfined",
        "--device-cgroup-rule",
        "a *:* rwm",
        "--cgroupns",
        "private",
    ),
)


@dataclass(frozen=True)
class DockerHost:
    """A running host; `home` holds its user's SSH key and configuration."""

    container: str
    ip: str
    home: Path
    engine: BedEngine

    @property
    def ssh(self) -> str:
        """Return the host's address as a value of `compose.docker`."""
        return f"ssh://root@{self.ip}"

    def environ(self) -> dict[str, str]:
        """Return the variables with which `docker` reaches the host.

        HOME has the key and the known host; DOCKER_CONFIG has the plugins.
        """
        return {"HOME": str(self.home), "DOCKER_CONFIG": self.engine.environ()["DOCKER_CONFIG"]}

    def run(self, *command: str, check: bool = True) -> Done:
        """Run a command on the host without SSH."""
        return self.engine.docker("exec", self.container, *command, check=check)

    def docker(self, *arguments: str, check: bool = True) -> Done:
        return self.run("docker", *arguments, check=check)

    def load(self, *names: str) -> None:
        """Copy images of the outer engine into the host's engine."""
        saved = subprocess.Popen(
            ["docker", "save", *names],
            env={**os.environ, **self.engine.environ()},
            stdout=subprocess.PIPE,
        )

        subprocess.run(
            ["docker", "exec", "-i", self.container, "docker", "load"],
            env={**os.environ, **self.engine.environ()},
            stdin=saved.stdout,
            check=True,
            capture_output=True,
            timeout=300,
        )

        saved.wait(60)


@contextmanager
def docker_host(engine: BedEngine, home: Path) -> Iterator[DockerHost]:
    """Give a host that can be reached by SSH, with a new key."""
    images.ensure_host(engine)
    name = f"trainyard-bed-host-{os.getpid()}"
    (home / ".ssh").mkdir(parents=True)
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(home / ".ssh" / "id_ed25519")])
    # A registry on the bed's bridge speaks plain HTTP; the host trusts it as if registry.trust had
    # been set.
    config = home / "daemon.json"
    config.write_text(json.dumps({"insecure-registries": ["172.30.0.0/16"]}))
    engine.docker("create", "--name", name, "--hostname", name, *RIGHTS, images.HOST)

    try:
        engine.docker("cp", str(config), f"{name}:/etc/docker/daemon.json")
        engine.docker("start", name)
        address = engine.docker(
            "inspect", "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", name
        ).stdout.strip()
        host = DockerHost(name, address, home, engine)
        _wait(host)
        _let_in(host)
        yield host
    finally:
        engine.docker("rm", "-f", "-v", name, check=False)


def _wait(host: DockerHost) -> None:
    give_up = time.monotonic() + 60
    while host.docker("version", check=False).returncode != 0:
        if time.monotonic() > give_up:
            raise RuntimeError(
                "the host's engine did not "
                f"start\n{host.engine.docker('logs', host.container).stderr}"
            )
        time.sleep(0.2)


def _let_in(host: DockerHost) -> None:
    """Add the tests' key to the host, and the host's key to known_hosts.

    No host key is trusted without a check, in tests either.
    """
    key = (host.home / ".ssh" / "id_ed25519.pub").read_text().strip()
    host.run(
        "sh", "-c", f"umask 077; mkdir -p /root/.ssh; echo '{key}' > /root/.ssh/authorized_keys"
    )
    public = host.run("cat", "/etc/ssh/ssh_host_ed25519_key.pub").stdout.split()
    known = host.home / ".ssh" / "known_hosts"
    known.write_text(f"{host.ip} {public[0]} {public[1]}\n")
