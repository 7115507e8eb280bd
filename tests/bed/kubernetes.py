"""A Kubernetes cluster on hosts of the bed: real API server, kubelets, DNS and storage.

Tests can request faults.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bed import access, chart, control_plane, hosts, nodes, programs, publishing
from tests.bed.control_plane import ControlPlane
from tests.bed.engine import BedEngine, Done
from tests.bed.hosts import Host, each
from tests.bed.places import HERE, free_port

MANIFESTS = HERE / "manifests"


@dataclass(frozen=True)
class KubeBed:
    """A running cluster; `home` has a user's files: kubeconfig, SSH key, known hosts, Helm's.

    `registry` is an address at which tests may run a registry without TLS: every host trusts it.
    """

    home: Path
    hosts: list[Host]
    engine: BedEngine
    plane: ControlPlane
    registry: str
    owner: str

    @property
    def kubeconfig(self) -> Path:
        return self.home / "kubeconfig"

    @property
    def chart(self) -> Path:
        return self.home / "charts" / chart.NAME

    def environ(self) -> dict[str, str]:
        """Return the environment of a user of this cluster."""
        return {**environ(self.engine, self.home), "KUBECONFIG": str(self.kubeconfig)}

    def kubectl(
        self, *arguments: str, check: bool = True, given: str | None = None, seconds: float = 120.0
    ) -> Done:
        """Run `kubectl ARGUMENTS` as the administrator, with `given` as its standard input."""
        return _run(
            ["kubectl", *arguments], self.environ(), check=check, given=given, seconds=seconds
        )

    def apply(self, text: str) -> None:
        """Apply manifests as the cluster's administrator."""
        self.kubectl("apply", "--server-side", "--validate=false", "-f", "-", given=text)

    def restricted(self, namespace: str) -> Path:
        """Return a kubeconfig with rights in one namespace only.

        The namespace is created if it is missing.
        """
        return access.restricted(self, namespace)

    @contextmanager
    def chart_repository(self) -> Iterator[str]:
        """Serve the operator's chart as a Helm repository on this machine; give its URL."""
        with chart.repository(self.chart, self.environ()) as url:
            yield url

    def host(self, name: str) -> Host:
        return next(host for host in self.hosts if host.name == name)

    def ready(self) -> set[str]:
        path = (
            "jsonpath={range .items[*]}{.metadata.name} "
            '{.status.conditions[?(@.type=="Ready")].status}{"\\n"}{end}'
        )
        done = self.kubectl("get", "nodes", "-o", path, check=False)
        pairs = [line.split() for line in done.stdout.splitlines()]
        return {pair[0] for pair in pairs if pair[1:] == ["True"]}

    def allocatable(self, host: Host, resource: str) -> str:
        """Return how much of a resource a host offers to pods; "" if it has no such resource."""
        escaped = resource.replace(".", "\\.")
        return self.kubectl(
            "get", "node", host.name, "-o", f"jsonpath={{.status.allocatable.{escaped}}}"
        ).stdout

    def fake_gpus(self, host: Host, count: int) -> None:
        """Let a host offer GPUs that do not exist.

        A container learns of its GPUs as from NVIDIA's device plugin.
        """
        host.stop("gpu-plugin")
        host.start("gpu-plugin", "gpu-plugin", f"--count={count}", f"--host={host.name}")
        wait(
            lambda: self.allocatable(host, GPU) == str(count),
            f"{host.name} offers {count} GPUs",
            seconds=30,
        )

    def no_gpus(self, host: Host) -> None:
        """End the device plugin, as when a driver fails: the node stays, but offers no GPU."""
        host.stop("gpu-plugin")
        wait(
            lambda: self.allocatable(host, GPU) in ("", "0"),
            f"{host.name} offers no GPUs",
            seconds=30,
        )

    def stop_api(self) -> None:
        """Kill the API server only; a regular stop would first wait for its open watches."""
        self.plane.host.kill("kube-apiserver")
        self.plane.wait(up=False)

    def start_api(self) -> None:
        """Start the API server again, and wait until it is ready."""
        self.plane.host.start("kube-apiserver")
        self.plane.wait(up=True)

    def publish(self, *names: str) -> None:
        """Push images of the engine to a registry at `registry`, which ends with this cluster.

        All clusters share the registry's data: a test that breaks a registry starts one of its own.
        """
        publishing.publish(self.engine, self.registry, *names, owner=self.owner)

    def trust_registry(self, address: str) -> None:
        """Let every host pull from a registry without TLS, as its administrator would.

        The setting applies to each pull from now on.
        """
        each(lambda host: trust_registry(host, address), self.hosts)


GPU = "nvidia.com/gpu"


@contextmanager
def kube_bed(
    engine: BedEngine, home: Path, *, count: int = 3, owner: str | None = None
) -> Iterator[KubeBed]:
    """Give a cluster of `count` hosts; the first runs the control plane and pods."""
    bed = start(engine, home, count=count, owner=owner)
    try:
        yield bed
    finally:
        hosts.remove(
            engine, [*(host.container for host in bed.hosts), publishing.container_of(bed.registry)]
        )


def start(engine: BedEngine, home: Path, *, count: int = 3, owner: str | None = None) -> KubeBed:
    """Start a cluster that lives until its hosts are removed."""
    programs.commands()
    owner = owner or hosts.this_process()
    machines = hosts.start(engine, home, count=count, owner=owner)
    try:
        return _start(engine, home, machines, owner)
    except BaseException:
        hosts.remove(engine, [host.container for host in machines])
        raise


def _start(engine: BedEngine, home: Path, machines: list[Host], owner: str) -> KubeBed:
    plane = control_plane.new_control_plane(machines[0])
    bed = KubeBed(home, machines, engine, plane, f"{engine.bridge_ip}:{free_port()}", owner)
    control_plane.secret(bed.kubeconfig, plane.kubeconfig("admin", group="system:masters"))
    chart.write(bed.chart)
    plane.write_files()
    each(lambda act: act(), [plane.start, *(_preparation(host) for host in machines)])
    nodes.start(plane, machines)
    bed.trust_registry(bed.registry)
    bed.apply("\n---\n".join(path.read_text() for path in sorted(MANIFESTS.glob("*.yaml"))))
    names = {host.name for host in machines}
    wait(lambda: bed.ready() == names, "all nodes are Ready", seconds=120, logs=lambda: _logs(bed))
    bed.kubectl("rollout", "status", "deployment/coredns", "-n", "kube-system", "--timeout=120s")
    return bed


def environ(engine: BedEngine, home: Path) -> dict[str, str]:
    """Return the environment of a user: ssh, the Docker engine, kubectl and helm."""
    ssh = hosts.environ(home)
    return {**ssh, **engine.environ(), "PATH": f"{programs.commands()}:{ssh['PATH']}"}


def trust_registry(host: Host, address: str) -> None:
    """Let a host pull from a registry without TLS; containerd reads the file at each pull."""
    directory = f"/etc/containerd/certs.d/{address}"
    text = f'server = "http://{address}"\n[host."http://{address}"]\n'
    host.shell(f"mkdir -p {directory}; printf '%s' '{text}' > {directory}/hosts.toml")


def wait(
    holds: Callable[[], bool], what: str, *, seconds: float, logs: Callable[[], str] = str
) -> None:
    """Wait until `holds` is true; after `seconds`, fail with the output of `logs`."""
    give_up = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > give_up:
            raise RuntimeError(f"after {seconds:.0f} s still not: {what}\n{logs()}")
        time.sleep(0.3)


def _logs(bed: KubeBed) -> str:
    return "\n".join(
        f"{host.name}: {host.log('kubelet')}" for host in bed.hosts if host.name not in bed.ready()
    )


def _preparation(host: Host) -> Callable[[], None]:
    return lambda: nodes.prepare(host)


def _run(
    command: Sequence[str],
    given_environ: Mapping[str, str],
    *,
    check: bool,
    given: str | None,
    seconds: float,
) -> Done:
    done = subprocess.run(
        command,
        env={**os.environ, **given_environ},
        input=given or "",
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    if check and done.returncode != 0:
        raise RuntimeError(
            f"{' '.join(command)} exited {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
    return done
