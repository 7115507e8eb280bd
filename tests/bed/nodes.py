"""Nodes of a bed's cluster: containerd, a pod network, kubelet and kube-proxy on each host."""

from __future__ import annotations

import json

from tests.bed.control_plane import BED, DNS_SERVICE, DOMAIN, ControlPlane, secret
from tests.bed.hosts import Host, each

PODS = "10.1.0.0/16"
SOCKET = "/run/containerd/containerd.sock"
EVICTION = 100 * 2**20


def start(plane: ControlPlane, hosts: list[Host]) -> None:
    """Make every host a node; the pods of `hosts[N]` have addresses of 10.1.N.0/24."""
    each(lambda number: _start_one(plane, hosts, number), range(len(hosts)))


def prepare(host: Host) -> None:
    """Start containerd, with the images that the cluster itself needs."""
    host.run("/opt/bed/images", "/var/lib/containerd")
    host.start("containerd", "containerd")
    # containerd answers even if its Kubernetes plugin could not be started.
    loaded = "ctr plugins ls 2> /dev/null | grep -Eq 'io.containerd.grpc.v1 +cri .* ok'"
    if (
        host.shell(
            f"for _ in $(seq 300); do {loaded} && exit; sleep 0.1; done; exit 1", check=False
        ).returncode
        != 0
    ):
        raise RuntimeError(f"containerd of {host.name} did not start\n{host.log('containerd')}")


def _start_one(plane: ControlPlane, hosts: list[Host], number: int) -> None:
    host = hosts[number]
    _write_files(plane, host, number)
    routes = [
        f"ip route replace 10.1.{other}.0/24 via {hosts[other].ip}" for other in range(len(hosts))
    ]
    del routes[number]

    host.shell(
        "\n".join(
            [
                "mkdir -p /etc/cni/net.d",
                f"cp {BED}/cni.conflist /etc/cni/net.d/10-bed.conflist",
                *routes,
            ]
        )
    )

    host.start(
        "kubelet",
        *("kubelet", f"--config={BED}/kubelet.json", f"--kubeconfig={BED}/kubelet.kubeconfig"),
        *(f"--hostname-override={host.name}", f"--node-ip={host.ip}"),
    )

    host.start("kube-proxy", "kube-proxy", f"--config={BED}/kube-proxy.json")
    host.start("provisioner", "/opt/bed/provisioner", host.name, f"{BED}/provisioner.json")


def _write_files(plane: ControlPlane, host: Host, number: int) -> None:
    files, authority = host.files, plane.authority
    (files / "ca.crt").write_bytes(authority.certificate)
    authority.write_pair(
        files,
        "kubelet",
        f"system:node:{host.name}",
        group="system:nodes",
        names=[host.name, host.ip],
    )

    authority.write_pair(files, "provisioner", "trainyard-bed-provisioner", group="system:masters")
    secret(
        files / "kubelet.kubeconfig",
        plane.kubeconfig(f"system:node:{host.name}", group="system:nodes"),
    )
    secret(files / "kube-proxy.kubeconfig", plane.kubeconfig("system:kube-proxy"))
    pair = {
        "ca": f"{BED}/ca.crt",
        "cert": f"{BED}/provisioner.crt",
        "key": f"{BED}/provisioner.key",
    }
    for name, document in (
        ("kubelet.json", _kubelet()),
        ("kube-proxy.json", _proxy(host)),
        ("cni.conflist", _network(number)),
        ("provisioner.json", {"api": plane.url, **pair}),
    ):
        (files / name).write_text(json.dumps(document, indent=1))


def _kubelet() -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{BED}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{BED}/kubelet.crt",
        "tlsPrivateKeyFile": f"{BED}/kubelet.key",
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "clusterDNS": [DNS_SERVICE],
        "clusterDomain": DOMAIN,
        "cgroupDriver": "cgroupfs",
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "featureGates": {"KubeletInUserNamespace": True},
        # A developer's disk may be fuller than a node's disk should be.
        "evictionHard": {
            "memory.available": str(EVICTION),
            "nodefs.available": "1%",
            "imagefs.available": "1%",
        },
        "imageGCHighThresholdPercent": 100,
        # The default of 10 s would delay tests that add and remove GPUs.
        "nodeStatusUpdateFrequency": "2s",
        # Reports of unchanged facts keep the default interval instead of 2 s.
        "nodeStatusReportFrequency": "5m",
    }


def _proxy(host: Host) -> dict[str, object]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": f"{BED}/kube-proxy.kubeconfig"},
        "clusterCIDR": PODS,
        "mode": "iptables",
        "hostnameOverride": host.name,
        "oomScoreAdj": 0,
        # A container cannot change the kernel's own settings.
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
            "udpTimeout": "0s",
            "udpStreamTimeout": "0s",
        },
    }


def _network(number: int) -> dict[str, object]:
    ranges = [[{"subnet": f"10.1.{number}.0/24"}]]
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": True,
        "hairpinMode": True,
        "ipam": {"type": "host-local", "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}]},
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "0.4.0", "name": "bed", "plugins": [bridge, ports]}
