"""A Docker engine of our own: its own socket, data, bridge and daemon.json, beside whatever the
machine runs.
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
# Images and layers that are not used again within two days of work.
OLD = "until=48h"


@dataclass(frozen=True)
class BedEngine:
    """A dockerd that we start and end; `subnet` is the third number of its bridge's addresses,
    172.30.N.0/24.

    Only one engine may write packet filters: a second one would take away those that keep the first
    one's networks apart. Without them ports are published by Docker's proxy alone, and containers
    do not reach the outside.
    """

    name: str
    data: Path
    subnet: int
    filters: bool = True

    @property
    def directory(self) -> Path:
        """Return the directory of its socket and pid file."""
        return RUN / self.name

    @property
    def address(self) -> str:
        """Return what DOCKER_HOST is for this engine."""
        return f"unix://{self.directory}/docker.sock"

    @property
    def bridge_ip(self) -> str:
        """Return this machine's address on the engine's bridge: not loopback, and free."""
        return f"172.30.{self.subnet}.1"

    @property
    def config(self) -> Path:
        """Return its daemon.json; dockerd wants a file that it is told of to exist."""
        return self.data / "daemon.json"

    @property
    def pid(self) -> int | None:
        """Return the pid of the running dockerd."""
        try:
            pid = int((self.directory / "docker.pid").read_text())
            return pid if str(self.directory) in " ".join(psutil.Process(pid).cmdline()) else None
        except (OSError, ValueError, psutil.Error):
            return None

    def environ(self) -> dict[str, str]:
        """Return what makes `docker`, and Trainyard, talk to this engine, with compose and
        buildx.
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
        """Start it, and wait until it answers."""
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

        # Popen would warn that its child still runs, which is what is wanted here.
        process.returncode = 0

    def stop(self) -> None:
        """End it as an operator would; its containers end with it."""
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
        """Take away what it leaves on the machine once it has ended, but for its data: mounts and
        its bridge.
        """
        ours = (f"{self.directory}/", f"{self.data}/")
        mounted = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for path in reversed([one for one in mounted if one.startswith(ours)]):
            run(["umount", path])
        if Path("/sys/class/net", self._bridge).exists():
            run(["ip", "link", "delete", self._bridge])

    def restart(self) -> None:
        """Stop and start it, as `systemctl restart docker` would."""
        self.stop()
        self.start()

    @contextmanager
    def trusting(self, registry: str) -> Iterator[None]:
        """Have it use a registry without TLS, as its administrator would: without a restart."""
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
        """Remove what tests built days ago, and nothing else uses; newer images make the next run
        quicker.
        """
        for words in (
            ("image", "prune", "--all", "--filter", f"label={IMAGE_LABEL}"),
            ("image", "prune"),
            ("builder", "prune"),
        ):
            self.docker(*words, "--force", "--filter", OLD, check=False)

    def load(self, *images: str, source: BedEngine) -> None:
        """Bring images of another engine here."""
        archive = self.data / "images.tar"
        source.docker("save", "-o", str(archive), *images)
        self.docker("load", "-i", str(archive))
        archive.unlink()

    def remove(self) -> None:
        """Stop it and remove its data and its bridge; for engines that live as long as a test."""
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
        # The kernel allows 15 characters.
        return f"ty-{self.name}"[:15]


def _keep_services_inside() -> None:
    """Refuse packets to services of a Kubernetes whose host has no rules for them yet: they would
    leave here.
    """
    for services in ("10.96.0.0/16", "10.152.183.0/24"):
        rule = ["DOCKER-USER", "-d", services, "-j", "REJECT"]
        if subprocess.run(["iptables", "-C", *rule], capture_output=True).returncode != 0:
            run(["iptables", "-I", *rule])


def _runs(pid: int) -> bool:
    """Say whether a process runs: an engine that another process of the tests started is its zombie
    once it ended.

    It is one as soon as its first thread has ended; the others still hold its files.
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
