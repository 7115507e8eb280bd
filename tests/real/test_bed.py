"""The bed itself: what a cluster on it shows to its users is what a cluster anywhere shows to them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.bed import hosts, kubernetes, publishing
from tests.bed.engine import BedEngine
from tests.bed.hosts import Host, Size
from tests.bed.kubernetes import KubeBed
from tests.real.yard import Done, wait_until

BASE = "trainyard-bed/base:1"
GPUS = "nvidia.com/gpu"

# One web server per host, each behind a Service of its own.
SERVER = """
apiVersion: v1
kind: Pod
metadata: {{name: on-{host}, labels: {{app: on-{host}}}}}
spec:
  nodeSelector: {{kubernetes.io/hostname: {host}}}
  terminationGracePeriodSeconds: 0
  containers:
    - name: server
      image: {image}
      command: [sh, -c, "cd $(mktemp -d); hostname > index.html; echo serving; exec python3 -u -m http.server 8000"]
---
apiVersion: v1
kind: Service
metadata: {{name: on-{host}}}
spec: {{selector: {{app: on-{host}}}, ports: [{{port: 80, targetPort: 8000}}]}}
"""

CLAIM = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: outputs}}
spec: {{accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 1Gi}}}}}}
---
apiVersion: v1
kind: Pod
metadata: {{name: writer}}
spec:
  restartPolicy: Never
  securityContext: {{runAsUser: 1000, runAsNonRoot: true}}
  containers:
    - name: writer
      image: {image}
      command: [sh, -c, "echo kept > /outputs/file && cat /outputs/file"]
      volumeMounts: [{{name: outputs, mountPath: /outputs}}]
  volumes: [{{name: outputs, persistentVolumeClaim: {{claimName: outputs}}}}]
"""

QUOTA = """
apiVersion: v1
kind: ResourceQuota
metadata: {name: small}
spec: {hard: {pods: "1", limits.cpu: "1"}}
"""


@pytest.fixture(scope="module")
def image(kube: KubeBed) -> str:
    """Give the name of an image that the hosts have to pull."""
    kube.publish(BASE)
    return f"{kube.registry}/{BASE}"


@pytest.fixture
def space(kube: KubeBed, request: pytest.FixtureRequest) -> Iterator[str]:
    """Give a namespace of the test's own."""
    name = request.node.name.replace("_", "-")[-40:].strip("-")
    kube.kubectl("create", "namespace", name)
    yield name
    kube.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture(scope="module")
def servers(kube: KubeBed, image: str) -> Iterator[list[str]]:
    """Give the names of pods, one on each host, that serve their own names at Services of the same names."""
    names = [f"on-{host.name}" for host in kube.hosts]
    for host in kube.hosts:
        kube.apply(SERVER.format(host=host.name, image=image))
    for name in names:
        kube.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=120s")
    yield names
    kube.kubectl("delete", "pod,service", *names)


def test_every_host_is_a_node_that_is_ready(kube: KubeBed) -> None:
    assert kube.ready() == {"host-1", "host-2", "host-3"}
    assert len({host.ip for host in kube.hosts}) == 3


def test_pods_reach_services_on_other_hosts_by_name(kube: KubeBed, servers: list[str]) -> None:
    for here in servers:
        for there in servers:
            url = f"http://{there}.default.svc.cluster.local/"
            wait_until(
                lambda here=here, url=url: _fetched(kube, here, url).returncode == 0,  # type: ignore[misc]
                seconds=30,
                what=f"{here} reaches {url}",
            )
            assert _fetched(kube, here, url).stdout.strip() == there


def test_logs_exec_and_port_forward_reach_every_host(kube: KubeBed, servers: list[str]) -> None:
    for name in servers:
        assert "serving" in kube.kubectl("logs", name).stdout
        assert kube.kubectl("exec", "-i", name, "--", "cat", given="through stdin").stdout == "through stdin"
        failed = kube.kubectl("exec", name, "--", "sh", "-c", "exit 7", check=False)
        assert failed.returncode == 7
        assert _through_a_port_forward(kube, f"svc/{name}") == name


def test_hosts_are_reached_by_ssh_as_a_user_with_sudo(kube: KubeBed) -> None:
    for host in kube.hosts:
        assert _ssh(kube, host, "whoami; hostname; sudo -n whoami").stdout.split() == ["ops", host.name, "root"]


def test_a_host_with_another_key_than_the_known_one_is_refused(kube: KubeBed, tmp_path: Path) -> None:
    host, other = kube.hosts[0], kube.hosts[1]
    known = dict(line.split(" ", 1) for line in (kube.home / ".ssh" / "known_hosts").read_text().splitlines())
    (tmp_path / "known").write_text(f"{host.ip} {known[other.ip]}\n")
    # What is given first wins, and the bed's `ssh` gives its own first.
    done = subprocess.run(
        [
            *("/usr/bin/ssh", "-i", str(kube.home / ".ssh" / "id_ed25519"), "-o", "BatchMode=yes"),
            *("-o", f"UserKnownHostsFile={tmp_path / 'known'}", host.ssh, "true"),
        ],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 255
    assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in done.stderr


def test_a_claim_gets_a_volume_that_a_user_who_is_not_root_may_write(kube: KubeBed, space: str, image: str) -> None:
    _apply(kube, space, CLAIM.format(image=image))
    _succeeds(kube, space, "writer")
    assert kube.kubectl("logs", "-n", space, "writer").stdout == "kept\n"
    volume = kube.kubectl("get", "pvc", "-n", space, "outputs", "-o", "jsonpath={.spec.volumeName}").stdout
    kube.kubectl("delete", "-n", space, "pod/writer", "pvc/outputs")
    wait_until(
        lambda: kube.kubectl("get", "pv", volume, check=False).returncode != 0, seconds=60, what="the volume is gone"
    )
    assert not any(volume in host.run("ls", "/var/lib/claims").stdout for host in kube.hosts)


def test_a_quota_is_enforced(kube: KubeBed, space: str, image: str) -> None:
    _apply(kube, space, QUOTA)
    refused = kube.kubectl("run", "-n", space, "greedy", f"--image={image}", check=False)
    assert refused.returncode == 1
    assert "failed quota: small: must specify limits.cpu" in refused.stderr


def test_a_user_of_one_namespace_works_there_and_nowhere_else(kube: KubeBed, space: str) -> None:
    config = str(kube.restricted(space))
    asked = {
        "create pods/exec": "yes",
        "create secrets": "yes",
        "create rolebindings": "no",
        "list nodes": "no",
        "list customresourcedefinitions": "no",
        "list pods --all-namespaces": "no",
        "get secrets -n kube-system": "no",
    }
    answers = {
        what: kube.kubectl("--kubeconfig", config, "auth", "can-i", *what.split(), check=False).stdout.strip()
        for what in asked
    }
    assert answers == asked
    assert Path(config).stat().st_mode & 0o777 == 0o600
    assert kube.kubectl("--kubeconfig", config, "get", "pods").returncode == 0


def test_a_kubelet_that_starts_has_no_gpus_until_their_plugin_registers_again(kube: KubeBed) -> None:
    host = kube.hosts[1]
    kube.fake_gpus(host, 3)
    try:
        kube.stop_kubelet(host)
        kube.start_kubelet(host)
        wait_until(lambda: kube.allocatable(host, GPUS) == "0", seconds=60, what="the kubelet is new")
        wait_until(lambda: kube.allocatable(host, GPUS) == "3", seconds=60, what="the GPUs are back")
    finally:
        kube.no_gpus(host)
    assert kube.allocatable(host, GPUS) == "0"


def test_a_bed_leaves_nothing_behind(engine: BedEngine, tmp_path: Path) -> None:
    with kubernetes.kube_bed(engine, tmp_path / "small", count=1, sizes=[Size(cpus=1, gibibytes=2)]) as small:
        small.publish(BASE)
        assert small.allocatable(small.hosts[0], "cpu") == "1"
        assert small.allocatable(small.hosts[0], "memory") == "2Gi"
        containers = {small.hosts[0].container, publishing.container_of(small.registry)}
        volumes = _volumes(engine, containers)
        assert len(volumes) == 4
        assert containers <= _names(engine)
    assert not containers & _names(engine)
    assert not volumes & set(engine.docker("volume", "ls", "-q").stdout.split())


def test_hosts_of_a_test_run_that_was_killed_are_removed_by_the_next(engine: BedEngine, tmp_path: Path) -> None:
    (tmp_path / "left").mkdir()
    # The first process of every machine has another start time than this.
    left = hosts.start(engine, tmp_path / "left", count=1, owner="1:1")[0]
    with hosts.bare_hosts(engine, tmp_path / "next", count=1):
        assert left.container not in _names(engine)


def test_a_bare_host_runs_nothing_but_sshd(bare_hosts: Callable[[int], list[Host]]) -> None:
    for host in bare_hosts(2):
        running = host.shell("cat /proc/[0-9]*/comm").stdout.split()
        assert {"containerd", "kubelet", "etcd", "kubelite"}.isdisjoint(running)
        assert "sshd" in running


def _names(engine: BedEngine) -> set[str]:
    return set(engine.docker("ps", "-a", "--format", "{{.Names}}").stdout.split())


def _volumes(engine: BedEngine, containers: set[str]) -> set[str]:
    form = "{{range .Mounts}}{{.Name}} {{end}}"
    return set(engine.docker("inspect", "--format", form, *containers).stdout.split())


def _fetched(kube: KubeBed, pod: str, url: str) -> Done:
    return kube.kubectl("exec", pod, "--", "wget", "-q", "-T", "5", "-t", "1", "-O", "-", url, check=False)


def _through_a_port_forward(kube: KubeBed, target: str) -> str:
    forward = subprocess.Popen(
        ["kubectl", "port-forward", target, ":80"],
        env={**os.environ, **kube.environ()},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert forward.stdout is not None
        port = forward.stdout.readline().split(" -> ")[0].rpartition(":")[2]
        return httpx.get(f"http://127.0.0.1:{port}/", timeout=20, trust_env=False).text.strip()
    finally:
        forward.terminate()
        forward.communicate(timeout=20)


def _ssh(kube: KubeBed, host: Host, script: str) -> Done:
    command = ["ssh", "-o", "BatchMode=yes", host.ssh, script]
    done = subprocess.run(command, env=kube.environ(), capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done


def _apply(kube: KubeBed, space: str, text: str) -> None:
    kube.kubectl("apply", "-n", space, "-f", "-", given=text)


def _succeeds(kube: KubeBed, space: str, pod: str) -> None:
    kube.kubectl("wait", "-n", space, "--for=jsonpath={.status.phase}=Succeeded", f"pod/{pod}", "--timeout=120s")
