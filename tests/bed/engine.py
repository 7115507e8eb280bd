"""A Docker engine of the bed, separate from the engine of the machine.

It has a socket, data directory, bridge and daemon.json of its own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.bed import plugins
from tests.bed.places import RUN, locked, run
from trainyard.seams.docker.images import IMAGE_LABEL

Done = subprocess.CompletedProcess[str]
# The age from which unused images and build layers are removed: two days of work.
OLD = "until=48h"


@dataclass(frozen=True)
class BedEngine:
    """A dockerd that the tests start and end; its bridge has the addresses 172.30.`subnet`.0/24.

    Only one engine may write packet filters (`filters`): a second engine would remove the filters
    that isolate the first engine's networks. Without filters, only Docker's proxy publishes ports,
    and containers do not reach the outside.
    """

    name: str
    data: Path
    subnet: int
    filters: bool = True

    @property
    def directory(self) -> Path:
        """Return the directory of the engine's socket and pid file."""
        return RUN / self.name

    @property
    def address(self) -> str:
        """Return the value of DOCKER_HOST for this engine."""
        return f"unix://{self.directory}/docker.sock"

    @property
    def bridge_ip(self) -> str:
        """Return this machine's address on the engine's bridge, which is not a loopback address."""
        return f"172.30.{self.subnet}.1"

    @property
    def config(self) -> Path:
        """Return the path of daemon.json: dockerd fails if its configured file does not exist."""
        return self.data / "daemon.json"

    @property
    def pid(self) -> int | None:
        """Return the pid of the running dockerd, None if it does not run."""
        try:
            pid = int((self.directory / "docker.pid").read_text())
            return pid if str(self.directory) in " ".join(psutil.Process(pid).cmdline()) else None
        except (OSError, ValueError, psutil.Error):
            return None

    def environ(self) -> dict[str, str]:
        """Return the variables that make `docker` and Trainyard use this engine.

        The plugins compose and buildx are included.
        """
        home = self.data / "docker-config"
        home.mkdir(parents=True, exist_ok=True)
        link = home / "cli-plugins"
        if not link.is_symlink():
            link.symlink_to(plugins.directory())
        return {"DOCKER_HOST": self.address, "DOCKER_CONFIG": str(home)}

    def docker(self, *arguments: str, check: bool = True, seconds: float = 300.0) -> Done:
        """Run `docker ARGUMENTS` on this engine."""
        done = subprocess.run(
            ["docker", *arguments],
            env={**os.environ, **self.environ()},
            capture_output=True,
            text=True,
            timeout=seconds,
            stdin=subprocess.DEVNULL,
        )
        if check and done.returncode != 0:
            raise RuntimeError(
                f"docker {' '.join(arguments)} exited "
                f"{done.returncode}\n{done.stdout}\n{done.stderr}"
            )

        return done

    def start(self) -> None:
        """Start the engine, and wait until it answers; do nothing if it runs already."""
        if self.pid is not None:
            return

        self.directory.mkdir(parents=True, exist_ok=True)
        self.data.mkdir(parents=True, exist_ok=True)
        (self.directory / "docker.pid").unlink(missing_ok=True)

        if not self.config.exists():
            self.config.write_text("{}\n")

        _bridge(self._bridge, f"{self.bridge_ip}/24")
        with (self.data / "dockerd.log").open("ab") as log:
            process = subprocess.Popen(
                [
                    "dockerd",
                    *("--host", self.address),
                    *("--data-root", str(self.data / "data")),
                    *("--exec-root", str(self.directory / "exec")),
                    *("--pidfile", str(self.directory / "docker.pid")),
                    *("--config-file", str(self.config)),
                    *("--bridge", self._bridge, f"--iptables={str(self.filters).lower()}"),
                    *("--containerd-namespace", f"trainyard-{self.name}"),
                    *("--containerd-plugins-namespace", f"trainyard-{self.name}-plugins"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

        give_up = time.monotonic() + 60
        while self.docker("version", check=False).returncode != 0:
            if process.poll() is not None or time.monotonic() > give_up:
                raise RuntimeError(
                    f"dockerd did not start\n{(self.data / 'dockerd.log').read_text()[-3000:]}"
                )
            time.sleep(0.1)

        if self.filters:
            _keep_services_inside()

        # Popen would warn that its child still runs, which is the intent here.
        process.returncode = 0

    def stop(self) -> None:
        """End the engine as an operator would; its containers end with it."""
        pid = self.pid
        if pid is None:
            return
        os.kill(pid, signal.SIGTERM)
        give_up = time.monotonic() + 60
        while _runs(pid):
            if time.monotonic() > give_up:
                raise RuntimeError(f"dockerd, process {pid}, did not end within 60 s")
            time.sleep(0.1)

    def withdraw(self) -> None:
        """Remove the mounts and the bridge that an ended engine leaves on the machine.

        The engine's data stay.
        """
        ours = (f"{self.directory}/", f"{self.data}/")
        mounted = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for path in reversed([one for one in mounted if one.startswith(ours)]):
            run(["umount", path])
        if Path("/sys/class/net", self._bridge).exists():
            run(["ip", "link", "delete", self._bridge])

    def restart(self) -> None:
        """Restart the engine, as `systemctl restart docker` would."""
        self.stop()
        self.start()

    @contextmanager
    def trusting(self, registry: str) -> Iterator[None]:
        """Let the engine use a registry without TLS; it reloads daemon.json without a restart."""
        self._trust(lambda those: [*those, registry])
        try:
            yield
        finally:
            self._trust(lambda those: [one for one in those if one != registry])

    def clear(self) -> None:
        """Remove every container, volume and network; images stay."""
        for listed, remove in (
            (("ps", "-aq"), ("rm", "-f", "-v")),
            (("volume", "ls", "-q"), ("volume", "rm", "-f")),
            (("network", "ls", "-q", "--filter", "type=custom"), ("network", "rm")),
        ):
            found = self.docker(*listed).stdout.split()
            if found:
                self.docker(*remove, *found, check=False)

    def prune(self) -> None:
        """Remove unused images and layers that are older than two days.

        Newer ones stay, since they make the next test run faster.
        """
        for words in (
            ("image", "prune", "--all", "--filter", f"label={IMAGE_LABEL}"),
            ("image", "prune"),
            ("builder", "prune"),
        ):
            self.docker(*words, "--force", "--filter", OLD, check=False)

    def load(self, *images: str, source: BedEngine) -> None:
        """Copy images from another engine to this one."""
        archive = self.data / "images.tar"
        source.docker("save", "-o", str(archive), *images)
        self.docker("load", "-i", str(archive))
        archive.unlink()

    def remove(self) -> None:
        """Stop the engine and remove its data and bridge; for an engine of a single test."""
        if self.pid is not None:
            self.clear()
        self.stop()
        self.withdraw()
        run(["rm", "-rf", str(self.data), str(self.directory)])

    def _trust(self, change: Callable[[list[str]], list[str]]) -> None:
        with locked("daemon.json"):
            document = json.loads(self.config.read_text() or "{}")
            trusted = change(document.get("insecure-registries", []))
            self.config.write_text(json.dumps({**document, "insecure-registries": trusted}))
            if self.pid is not None:
                os.kill(self.pid, signal.SIGHUP)
        give_up = time.monotonic() + 30
        form = "{{range .RegistryConfig.IndexConfigs}}{{if not .Secure}}{{.Name}} {{end}}{{end}}"
        while not set(trusted) <= set(self.docker("info", "--format", form).stdout.split()):
            if time.monotonic() > give_up:
                raise RuntimeError(f"the engine did not read {self.config} again")
            time.sleep(0.1)

    @property
    def _bridge(self) -> str:
        # The kernel allows at most 15 characters.
        return f"ty-{self.name}"[:15]


def _keep_services_inside() -> None:
    """Reject packets to Kubernetes services that leave a host.

    A host without rules for its services yet would send such packets out of this machine.
    """
    for services in ("10.96.0.0/16", "10.152.183.0/24"):
        rule = ["DOCKER-USER", "-d", services, "-j", "REJECT"]
        if subprocess.run(["iptables", "-C", *rule], capture_output=True).returncode != 0:
            run(["iptables", "-I", *rule])


def _runs(pid: int) -> bool:
    """Say whether a process runs; a zombie counts as ended once only one thread is left.

    An engine that another process of the tests started becomes that process's zombie when it ends.
    The engine is a zombie as soon as its first thread has ended, while its other threads still hold
    its files.
    """
    try:
        is_zombie = psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        return not is_zombie or len(list(Path(f"/proc/{pid}/task").iterdir())) > 1
    except (psutil.NoSuchProcess, FileNotFoundError):
        return False


def _bridge(name: str, address: str) -> None:
    if not (Path("/sys/class/net") / name).exists():
        run(["ip", "link", "add", name, "type", "bridge"])
        run(["ip", "address", "add", address, "dev", name])
    run(["ip", "link", "set", name, "up"])
