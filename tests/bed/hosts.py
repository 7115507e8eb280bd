"""Containers that play a user's machines: a real sshd, a user with sudo, no other services."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tests.bed import images, layers
from tests.bed.engine import BedEngine, Done
from tests.bed.host import RIGHTS
from tests.bed.places import run
from trainyard.seams import processes

USER = "ops"
LABEL = "io.trainyard.bed"
BY_HAND = "by-hand:"
INOTIFY_INSTANCES = 8192
One = TypeVar("One")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Host:
    """A running host; this machine's directory `files` is mounted on it at /etc/bed."""

    name: str
    container: str
    ip: str
    home: Path
    engine: BedEngine

    @property
    def ssh(self) -> str:
        """Return the destination for `ssh`.

        The keys of user and host are known where the variables of `environ` are set.
        """
        return f"{USER}@{self.ip}"

    @property
    def files(self) -> Path:
        """Return the directory of this machine that the host mounts at /etc/bed."""
        return self.home / "hosts" / self.name

    def run(self, *command: str, check: bool = True, seconds: float = 300.0) -> Done:
        """Run a command on the host as root, without SSH."""
        return self.engine.docker("exec", self.container, *command, check=check, seconds=seconds)

    def shell(self, script: str, *, check: bool = True) -> Done:
        return self.run("sh", "-euc", script, check=check)

    def start(self, daemon: str, *command: str) -> None:
        self.run("/opt/bed/unit", "start", daemon, *command)

    def stop(self, daemon: str) -> None:
        self.run("/opt/bed/unit", "stop", daemon)

    def kill(self, daemon: str) -> None:
        """Kill a daemon, as if it had crashed."""
        self.run("/opt/bed/unit", "kill", daemon)

    def power_off(self) -> None:
        """Cut the power: the memory is lost, and the host is unreachable until `power_on`."""
        self.run("/opt/bed/power", "off")
        # Without an ARP entry, a connection to the host fails after 3 s. With an entry, the
        # connection would wait for an answer without a limit.
        run(["ip", "neigh", "flush", "to", self.ip])

    def power_on(self) -> None:
        """Boot the host after its power was cut, with the same address.

        Its services start as on any machine.
        """
        self.run("/opt/bed/power", "on")

    def log(self, daemon: str) -> str:
        """Return the last 40 lines of a daemon's log."""
        return self.run("tail", "-n", "40", f"/var/log/{daemon}.log", check=False).stdout


@contextmanager
def bare_hosts(
    engine: BedEngine,
    home: Path,
    *,
    count: int = 1,
    owner: str | None = None,
    image: str = images.KUBE_HOST,
) -> Iterator[list[Host]]:
    """Give hosts that an unprivileged user with sudo reaches by SSH, with no services running."""
    made = start(engine, home, count=count, owner=owner, image=image)
    try:
        yield made
    finally:
        remove(engine, [host.container for host in made])


def start(
    engine: BedEngine,
    home: Path,
    *,
    count: int,
    owner: str | None = None,
    image: str = images.KUBE_HOST,
) -> list[Host]:
    """Start hosts host-1 to host-N, which live until they are removed.

    The SSH key and the known hosts are written to `home`.
    """
    images.ensure_host_image(engine, image)
    unpacked = layers.ensure(engine)
    remove_leftovers(engine)
    _allow_watches()
    owner = owner or this_process()
    _make_key(home)
    names = re.sub(r"[^A-Za-z0-9]+", "-", f"{owner}-{home.name}")
    containers = [f"trainyard-bed-{names}-{number}" for number in range(1, count + 1)]
    try:
        made = each(
            lambda number: _start_one(
                engine, home, containers[number], f"host-{number + 1}", owner, image, unpacked
            ),
            range(count),
        )
    except BaseException:
        remove(engine, containers)
        raise

    _write_ssh(home, made)
    return made


def each(act: Callable[[One], Result], things: Iterable[One]) -> list[Result]:
    """Call `act` with all of the things at the same time; return the results in order."""
    todo = list(things)
    with ThreadPoolExecutor(max(len(todo), 1)) as pool:
        return list(pool.map(act, todo))


def remove(engine: BedEngine, containers: Sequence[str]) -> None:
    """Remove hosts with all of their data."""
    if containers:
        engine.docker("rm", "-f", "-v", *containers, check=False)


def remove_leftovers(engine: BedEngine) -> None:
    """Remove the hosts that killed test runs left."""
    owned = [line.split() for line in _listed(engine, '{{.ID}} {{.Label "' + LABEL + '"}}')]
    remove(engine, [one[0] for one in owned if not _alive(one[1])])


def remove_owned(engine: BedEngine, owner: str) -> None:
    owned = [line.split() for line in _listed(engine, '{{.ID}} {{.Label "' + LABEL + '"}}')]
    remove(engine, [one[0] for one in owned if one[1] == owner])


def environ(home: Path) -> dict[str, str]:
    """Return the variables that make `ssh` use the bed's key and known hosts.

    OpenSSH ignores $HOME and reads the home that passwd names. An `ssh` with explicit paths is
    therefore first on PATH.
    """
    return {"HOME": str(home), "PATH": f"{home / 'bin'}:{os.environ['PATH']}"}


def this_process() -> str:
    """Return the label that marks this test run as the owner of its hosts."""
    own = processes.identify(os.getpid())
    assert own is not None
    return f"{own.pid}:{own.started}"


def by_hand(name: str) -> str:
    """Return the owner label of hosts that a developer starts by hand."""
    return f"{BY_HAND}{name}"


def _start_one(
    engine: BedEngine, home: Path, container: str, name: str, owner: str, image: str, unpacked: Path
) -> Host:
    files = home / "hosts" / name
    files.mkdir(parents=True, exist_ok=True)
    (files / "authorized_keys").write_text((home / ".ssh" / "id_ed25519.pub").read_text())

    engine.docker(
        *(
            "run",
            "--detach",
            "--name",
            container,
            "--hostname",
            name,
            "--label",
            f"{LABEL}={owner}",
        ),
        # Programs run from these directories.
        *("--tmpfs", "/run:exec,mode=755", "--tmpfs", "/tmp:exec,mode=1777"),
        *(
            "--volume",
            f"{files}:/etc/bed:ro",
            "--volume",
            f"{unpacked}:{layers.ON_HOSTS}:ro",
            *RIGHTS,
            image,
        ),
    )

    address = engine.docker(
        "inspect", "--format", "{{.NetworkSettings.IPAddress}}", container
    ).stdout.strip()
    host = Host(name, container, address, home, engine)
    give_up = time.monotonic() + 60

    while host.run("test", "-e", "/run/booted", check=False).returncode != 0:
        if time.monotonic() > give_up:
            raise RuntimeError(
                f"{name} did not boot\n{engine.docker('logs', container, check=False).stderr}"
            )
        time.sleep(0.1)

    return host


def _allow_watches() -> None:
    """Raise the kernel's limit of inotify instances, which all containers share.

    The default of 128 is enough for about ten hosts.
    https://kind.sigs.k8s.io/docs/user/known-issues/#pod-errors-due-to-too-many-open-files
    """
    limit = Path("/proc/sys/fs/inotify/max_user_instances")
    if int(limit.read_text()) < INOTIFY_INSTANCES:
        limit.write_text(str(INOTIFY_INSTANCES))


def _make_key(home: Path) -> None:
    (home / ".ssh").mkdir(parents=True, exist_ok=True, mode=0o700)
    if not (home / ".ssh" / "id_ed25519").exists():
        run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(home / ".ssh" / "id_ed25519")]
        )


def _write_ssh(home: Path, made: list[Host]) -> None:
    """Write known_hosts, and an `ssh` and `scp` that use it and the bed's key.

    The hosts' keys are read without SSH: no host key is trusted without a check, in tests either.
    """
    keys = each(
        lambda host: host.run("cat", "/etc/ssh/ssh_host_ed25519_key.pub").stdout.split(), made
    )
    known = home / ".ssh" / "known_hosts"
    known.write_text(
        "".join(f"{host.ip} {key[0]} {key[1]}\n" for host, key in zip(made, keys, strict=True))
    )
    options = f'-i "{home}/.ssh/id_ed25519" -o IdentitiesOnly=yes -o UserKnownHostsFile="{known}"'
    (home / "bin").mkdir(exist_ok=True)
    for name in ("ssh", "scp"):
        program = home / "bin" / name
        program.write_text(f'#!/bin/sh\nexec /usr/bin/{name} {options} "$@"\n')
        program.chmod(0o755)


def _alive(owner: str) -> bool:
    """Say whether the owner of a host still exists: a running test run, or a developer (always)."""
    if owner.startswith(BY_HAND):
        return True
    pid, _, started = owner.partition(":")
    return processes.alive(processes.ProcessId(int(pid), started))


def _listed(engine: BedEngine, form: str) -> list[str]:
    return engine.docker(
        "ps", "-a", "--filter", f"label={LABEL}", "--format", form
    ).stdout.splitlines()
