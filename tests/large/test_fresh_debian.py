"""A Debian with only git, make and python3: `make demo`, then `make test`, and no other command."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bed import images
from tests.bed.engine import BedEngine

ROOT = Path(__file__).parents[2]
IMAGE = "trainyard-bed/fresh-debian:1"
PACKAGES = ("ca-certificates", "git", "make", "python3")
# Variables that give programs with their own CAs the CA of a proxy in front of the package
# registries.
TRUST = ("PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")
NEXT = [
    "That was all. Begin a project of your own:",
    "    . .venv/bin/activate && trainyard init robots && cd robots",
    "    trainyard cluster.up && trainyard train.dispatch jobs/spirals",
]


class Debian:
    """A container with a clone of this repository's HEAD; its output goes to a log file as well."""

    def __init__(self, engine: BedEngine, name: str, log: Path) -> None:
        self._engine = engine
        self._name = name
        self._log = log

    def begin(self) -> None:
        """Start the container with a user `ann` without rights; root and ann each get a clone."""
        trust = [word for name in TRUST for word in ("--env", f"{name}={images.HOST_CA}")]
        # Host network: package registries are reached as from this machine. 2 GiB: Ray's object
        # store.
        options = ("--init", "--network=host", "--shm-size=2g", *trust)
        self._engine.docker(
            "run", "--detach", "--name", self._name, *options, IMAGE, "sleep", "infinity"
        )
        self.run("useradd --create-home --shell /bin/bash ann")
        self.copy_pip_configuration()
        for home in ("/root", "/home/ann"):
            self.copy(ROOT, f"{home}/trainyard")
        self.run("chown -R ann: /home/ann")

    def copy_pip_configuration(self) -> None:
        if Path("/etc/pip.conf").exists():
            self._engine.docker("cp", "/etc/pip.conf", f"{self._name}:/etc/pip.conf")

    def copy(self, repository: Path, target: str) -> None:
        """Clone HEAD of a repository into the container."""
        bundle = self._log.with_suffix(".bundle")
        subprocess.run(
            ["git", "-C", str(repository), "bundle", "create", "-q", str(bundle), "HEAD"],
            check=True,
        )
        self._engine.docker("cp", str(bundle), f"{self._name}:/tmp/bundle")
        self.run(f"git clone -q /tmp/bundle {target}")

    def run(self, command: str, *, user: str = "root") -> list[str]:
        """Run a command line as a user does at a login; return the lines that it printed."""
        with self._log.open("ab") as log:
            log.write(f"{user}$ {command}\n".encode())
            begins = log.tell()
            log.flush()

            # One stream: docker would put the lines of two in another order.
            login = [
                "su",
                "--whitelist-environment",
                ",".join(TRUST),
                "-l",
                user,
                "-c",
                f"({command}) 2>&1",
            ]

            done = subprocess.run(
                ["docker", "exec", self._name, *login],
                env={**os.environ, **self._engine.environ()},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

        said = self._log.read_bytes()[begins:].decode(errors="replace").splitlines()
        assert done.returncode == 0, "\n".join(said[-60:])
        return said

    def remove(self) -> None:
        self._engine.docker("rm", "-f", "-v", self._name, check=False)


@pytest.fixture
def debian(engine: BedEngine, tmp_path: Path) -> Iterator[Debian]:
    images.ensure_debian(engine, IMAGE, PACKAGES)
    made = Debian(engine, f"trainyard-bed-fresh-{os.getpid()}", tmp_path / "output.log")
    try:
        made.begin()
        yield made
    finally:
        made.remove()


def test_root_has_a_demo_and_the_tests_by_one_command_each(debian: Debian) -> None:
    shown = debian.run("cd trainyard && make demo")
    assert shown[0].startswith("make demo: starts a Ray cluster on this machine")
    assert shown[-3:] == NEXT
    assert [line for line in shown if "next:" in line] == []
    # The commands of the last lines work as they are printed.
    debian.run(
        "cd trainyard && . .venv/bin/activate && trainyard init robots && cd robots && trainyard "
        "cluster.list"
    )

    said = debian.run("cd trainyard && make test")
    assert said[0].startswith("make test: 12 minutes the first time, 8 later")
    why = (
        "they start a Docker engine, and this container may not (no CAP_SYS_ADMIN or no "
        "CAP_NET_ADMIN)"
    )
    assert (
        said[-1] == f"make test: passed: core, core-browser; left out: core-containers, since {why}"
    )


def test_a_user_without_rights_has_them_too(debian: Debian) -> None:
    # The administrator's part of the installation.
    debian.run("apt-get update -q && apt-get install -y -q python3-venv")
    assert debian.run("cd trainyard && make demo", user="ann")[-3:] == NEXT
    said = debian.run("cd trainyard && make test", user="ann")
    assert said[-1] == (
        "make test: passed: core, core-browser; left out: core-containers, since they need root, "
        "or sudo without a "
        "password; "
        "left out: what uses chromium, ssh, vulkaninfo, which this machine lacks"
    )
