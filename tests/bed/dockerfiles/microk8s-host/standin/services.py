"""The snap's services: those that this node runs, with arguments from the files in args/.

A service reads its file only when it starts.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from standin import certs, store
from standin.places import (
    API_PORT,
    ARGS,
    BED,
    CERTS,
    COMMON,
    CONTAINERD,
    CREDENTIALS,
    DATA,
    PODS,
    SERVICES,
    SIDELOAD,
    default_address,
    installed,
    is_worker,
    locked,
    node_name,
    unlock,
    wait_until,
)

# A lock that only the bed has: while it exists, only the services of `WAITING` run.
WAITS = "standin-waits"
UNIT = "/opt/bed/unit"
PREFIX = "microk8s."
# The services of the snap's daemon-kubelite: separate here, one process in MicroK8s.
KUBELITE = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy")
CONTROL = (
    "dqlite",
    "kine",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "cluster-agent",
)
NODE = ("containerd", "sideload", "network", "kubelet", "kube-proxy", "hostpath", "nvidia")
# Services of a host before its first use or join. MicroK8s starts all, and stops the others at a
# join.
WAITING = ("containerd", "sideload", "kubelet")
OF_SERVICE = {
    "daemon-containerd": ("containerd", "sideload"),
    "daemon-kubelite": KUBELITE,
    "daemon-k8s-dqlite": ("dqlite", "kine"),
    "daemon-cluster-agent": ("cluster-agent",),
    "daemon-apiserver-proxy": ("apiserver-proxy",),
}


def expected() -> tuple[str, ...]:
    """Return the daemons that this node runs, in the order in which they start."""
    if is_worker():
        return ("apiserver-proxy", *NODE, "cluster-agent")
    return WAITING if locked(WAITS) else (*CONTROL, *NODE)


def need_control() -> None:
    """Start the control plane at its first use."""
    if locked(WAITS) and not is_stopped():
        unlock(WAITS)
        start()
        wait_for_api()


def start(*names: str) -> None:
    for name in names or expected():
        if name in KUBELITE:
            # wrappers/run-kubelite-with-args does so, for `snap start` after `microk8s stop`.
            unlock("stopped.lock")
        if name in expected():
            environ = {**os.environ, **_environ(name)}
            subprocess.run(
                [UNIT, "start", PREFIX + name, *_COMMANDS[name]()], check=True, env=environ
            )


def stop(*names: str) -> None:
    for name in names or (*reversed(CONTROL), *reversed(NODE), "apiserver-proxy"):
        # A stopped API server would wait for its open watches until it is killed, 10 s later.
        action = "kill" if name == "kube-apiserver" else "stop"
        subprocess.run([UNIT, action, PREFIX + name], check=True)


def restart(*names: str) -> None:
    stop(*names)
    start(*names)


def enable(*names: str) -> None:
    """Let boots start these daemons, by default all."""
    found = installed()
    if found:
        replace(found, disabled=tuple(set(found.disabled) - set(names)) if names else ()).write()


def disable(*names: str) -> None:
    """Let boots no longer start these daemons, by default all."""
    found = installed()
    if found:
        replace(
            found,
            disabled=tuple({*found.disabled, *(names or (*CONTROL, *NODE, "apiserver-proxy"))}),
        ).write()


def wait_for_api(seconds: float = 120.0) -> bool:
    """Wait until the API answers on this node; say whether it did."""
    return wait_until(
        lambda: kubectl("get", "--raw", "/readyz", seconds=5).returncode == 0, seconds
    )


def kubectl(
    *arguments: str, given: str | None = None, seconds: float = 60.0
) -> subprocess.CompletedProcess[str]:
    """Run kubectl with this node's credentials; a worker has those of its kubelet.

    They suffice, since authorization is AlwaysAllow unless rbac is enabled.
    """
    command = kubectl_command(*arguments)
    try:
        return subprocess.run(command, input=given, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", "timed out")


def kubectl_command(*arguments: str) -> list[str]:
    config = CREDENTIALS / ("kubelet.config" if is_worker() else "client.config")
    return ["/opt/bed/kubectl", f"--kubeconfig={config}", *arguments]


def argument_of(service: str, flag: str) -> str:
    """Return the value of a flag in args/SERVICE, "" without one."""
    for line in _lines(service):
        name, _, value = line.partition("=")
        if name == flag:
            return value
    return ""


def set_argument(service: str, flag: str, value: str | None) -> None:
    """Set a flag in args/SERVICE, or remove it if `value` is None."""
    kept = [line for line in _lines(service) if line.partition("=")[0] != flag]
    added = [] if value is None else [f"{flag}={value}"]
    (ARGS / service).write_text("\n".join([*kept, *added]) + "\n")


def configure_kubelet(arguments: Mapping[str, str]) -> None:
    """Set arguments of the kubelet, and restart all services that share kubelite with it."""
    for flag, value in arguments.items():
        set_argument("kubelet", flag, value)
    restart(*KUBELITE)


def write_default_arguments() -> None:
    """Write the files in args/, as an installation does."""
    ARGS.mkdir(parents=True, exist_ok=True)
    for service, lines in _DEFAULTS.items():
        (ARGS / service).write_text("\n".join(lines) + "\n")
    for host, server in (
        ("docker.io", "https://docker.io"),
        ("localhost:32000", "http://localhost:32000"),
    ):
        directory = ARGS / "certs.d" / host
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "hosts.toml").write_text(f'server = "{server}"\n')
    (ARGS / "containerd-env").write_text("")
    template = Path("/opt/bed/containerd-template.toml").read_text()
    (ARGS / "containerd-template.toml").write_text(template)


def _lines(service: str) -> list[str]:
    path = ARGS / service
    return [line for line in path.read_text().splitlines() if line.strip()] if path.exists() else []


def _arguments(service: str) -> list[str]:
    known = {"SNAP_DATA": str(DATA), "SNAP_COMMON": str(COMMON)}
    text = "\n".join(_lines(service))
    for name, value in known.items():
        text = text.replace(f"${{{name}}}", value)
    return shlex.split(text)


def _environ(name: str) -> dict[str, str]:
    """Return the variables that a daemon's environment has in addition.

    With BED_VERSION, the kubelet reports the version of the installed channel.
    """
    found = installed()
    environ = {"BED_VERSION": found.version} if found and name == "kubelet" else {}
    if name == "kube-apiserver":
        # It saves a third of the CPU time of the start.
        environ["GOGC"] = "400"
    if name == "containerd":
        pairs = (line.partition("=") for line in _lines("containerd-env") if "=" in line)
        environ.update((key, value) for key, _, value in pairs)
    return environ


def _containerd() -> list[str]:
    config = ARGS / "containerd.toml"
    text = (ARGS / "containerd-template.toml").read_text()
    config.write_text(
        text.replace("${SNAP_DATA}", str(DATA)).replace("${SNAP_COMMON}", str(COMMON))
    )
    CONTAINERD.parent.mkdir(parents=True, exist_ok=True)
    # The images that a cluster itself needs; the real snap pulls them from the internet.
    subprocess.run(["/opt/bed/images", str(COMMON / "var/lib/containerd")], check=True)
    return ["containerd", "--config", str(config), *_arguments("containerd")]


def _kubelet() -> list[str]:
    address = default_address()
    certs.kubelet_server()
    ours = [
        f"--hostname-override={node_name()}",
        f"--node-ip={address}",
        f"--tls-cert-file={CERTS}/kubelet-server.crt",
        f"--tls-private-key-file={CERTS}/kubelet-server.key",
        # For the bed only: its containers run in a container.
        *(
            "--cgroup-driver=cgroupfs",
            "--oom-score-adj=0",
            "--feature-gates=KubeletInUserNamespace=true",
        ),
        "--node-status-update-frequency=2s",
        # No garbage collection of images: the disk is a developer's, and the pause image could not
        # be pulled again.
        "--image-gc-high-threshold=100",
    ]

    return ["kubelet", *_arguments("kubelet"), *ours]


def _api() -> list[str]:
    return [
        "kube-apiserver",
        *_arguments("kube-apiserver"),
        f"--advertise-address={default_address()}",
    ]


def _proxy() -> list[str]:
    config = CREDENTIALS / "proxy.config"
    ours = [f"--hostname-override={node_name()}", "--oom-score-adj=0", "--conntrack-max-per-core=0"]
    ours += [
        "--conntrack-min=0",
        "--conntrack-tcp-timeout-established=0s",
        "--conntrack-tcp-timeout-close-wait=0s",
    ]
    return ["kube-proxy", f"--kubeconfig={config}", *_arguments("kube-proxy"), *ours]


def _kine() -> list[str]:
    address = store.own_address().rpartition(":")[0]
    return [
        "kine",
        f"--local=http://{address}:12379",
        f"--cluster={DATA}/var/kubernetes/backend/cluster.yaml",
    ]


def _standin(module: str) -> Callable[[], list[str]]:
    return lambda: ["env", "PYTHONPATH=/opt/bed", "python3", "-m", f"standin.{module}"]


def _gpus() -> list[str]:
    """Return the command of the device plugin that the addon brings.

    The plugin starts once this machine has GPUs and the addon uses the host's driver. Where the
    addon is to install a driver, no plugin starts: this machine has a driver already.
    """
    asks = shlex.join(["/opt/bed/kubectl", f"--kubeconfig={CREDENTIALS}/kubelet.config"])
    script = f"""
until grep -qs '[1-9]' {BED}/gpus && {asks} get namespace --selector=driver=host 2> /dev/null | grep -q gpu-operator
do sleep 2; done
exec gpu-plugin --count=$(cat {BED}/gpus) --host={node_name()}"""
    return ["sh", "-c", script]


_COMMANDS: dict[str, Callable[[], list[str]]] = {
    "containerd": _containerd,
    "dqlite": store.command,
    "kine": _kine,
    "kube-apiserver": _api,
    "kube-controller-manager": lambda: [
        *("kube-controller-manager", f"--kubeconfig={CREDENTIALS}/controller.config"),
        *_arguments("kube-controller-manager"),
    ],
    "kube-scheduler": lambda: [
        *("kube-scheduler", f"--kubeconfig={CREDENTIALS}/scheduler.config"),
        *_arguments("kube-scheduler"),
    ],
    "kubelet": _kubelet,
    "kube-proxy": _proxy,
    "cluster-agent": _standin("agent"),
    "network": _standin("network"),
    "sideload": lambda: ["sh", "/opt/bed/sideload", str(CONTAINERD), str(SIDELOAD)],
    "apiserver-proxy": _standin("proxy"),
    "hostpath": _standin("hostpath"),
    "nvidia": _gpus,
}
_TLS = ("--service-account-issuer=https://kubernetes.default.svc",)
_DEFAULTS: dict[str, tuple[str, ...]] = {
    "containerd": (),
    "cluster-agent": ("--bind=0.0.0.0:25000",),
    "kube-apiserver": (
        "--cert-dir=${SNAP_DATA}/certs",
        f"--service-cluster-ip-range={SERVICES}",
        "--authorization-mode=AlwaysAllow",
        "--service-account-key-file=${SNAP_DATA}/certs/serviceaccount.key",
        "--client-ca-file=${SNAP_DATA}/certs/ca.crt",
        "--tls-cert-file=${SNAP_DATA}/certs/server.crt",
        "--tls-private-key-file=${SNAP_DATA}/certs/server.key",
        "--kubelet-client-certificate=${SNAP_DATA}/certs/apiserver-kubelet-client.crt",
        "--kubelet-client-key=${SNAP_DATA}/certs/apiserver-kubelet-client.key",
        "--kubelet-certificate-authority=${SNAP_DATA}/certs/ca.crt",
        "--kubelet-preferred-address-types=InternalIP,Hostname,InternalDNS,ExternalDNS,ExternalIP",
        f"--secure-port={API_PORT}",
        "--etcd-servers=http://127.0.0.1:12380",
        "--allow-privileged=true",
        *_TLS,
        "--service-account-signing-key-file=${SNAP_DATA}/certs/serviceaccount.key",
        "--event-ttl=5m",
        "--requestheader-client-ca-file=${SNAP_DATA}/certs/front-proxy-ca.crt",
        "--proxy-client-cert-file=${SNAP_DATA}/certs/front-proxy-client.crt",
        "--proxy-client-key-file=${SNAP_DATA}/certs/front-proxy-client.key",
    ),
    "kube-controller-manager": (
        "--service-account-private-key-file=${SNAP_DATA}/certs/serviceaccount.key",
        "--root-ca-file=${SNAP_DATA}/certs/ca.crt",
        "--cluster-signing-cert-file=${SNAP_DATA}/certs/ca.crt",
        "--cluster-signing-key-file=${SNAP_DATA}/certs/ca.key",
        "--use-service-account-credentials",
        # For the bed only: in MicroK8s, calico assigns the pods' addresses to nodes.
        *("--allocate-node-cidrs", f"--cluster-cidr={PODS}", "--leader-elect=true"),
    ),
    "kube-scheduler": ("--leader-elect=true",),
    "kubelet": (
        "--kubeconfig=${SNAP_DATA}/credentials/kubelet.config",
        "--cert-dir=${SNAP_DATA}/certs",
        "--client-ca-file=${SNAP_DATA}/certs/ca.crt",
        "--anonymous-auth=false",
        "--root-dir=${SNAP_COMMON}/var/lib/kubelet",
        "--fail-swap-on=false",
        # MicroK8s has 1Gi of disk here; a developer's disk may be fuller than a node's should be.
        "--eviction-hard=memory.available<100Mi,nodefs.available<1%,imagefs.available<1%",
        "--container-runtime-endpoint=unix://${SNAP_COMMON}/run/containerd.sock",
        "--node-labels=microk8s.io/cluster=true,node.kubernetes.io/microk8s-controlplane=microk8s-controlplane",
        "--authentication-token-webhook=true",
        "--read-only-port=0",
    ),
    "kube-proxy": (
        f"--cluster-cidr={PODS}",
        "--proxy-mode=iptables",
        "--healthz-bind-address=127.0.0.1",
    ),
}


def is_stopped() -> bool:
    return locked("stopped.lock")
