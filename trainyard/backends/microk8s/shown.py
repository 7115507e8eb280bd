"""The hosts in `cluster.plan --json`, each with the files it would get."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainyard.backends.microk8s import files
from trainyard.backends.microk8s.facts import LAUNCH_FILE, SYSCTL_FILE, Facts
from trainyard.backends.microk8s.install import host_names
from trainyard.backends.microk8s.lab import Host, Lab
from trainyard.seams.ssh import hosts_file
from trainyard.spec.cluster import ClusterSpec


def documents(spec: ClusterSpec, lab: Lab, environ: Mapping[str, str]) -> list[dict[str, Any]]:
    """Ask the hosts; return a document of each, and one of the operator.

    Only an installation reads the launch configuration, so hosts with MicroK8s
    lack it.
    """
    facts = lab.facts()
    lab.put_members_first()
    common = {hosts_file.PATH: hosts_file.block(host_names(lab, facts))}
    for registry in files.registries(spec, environ):
        for path, content in registry.files.items():
            common[path] = content.decode()

    operator = spec.kuberay.operator
    release = {
        "kind": "HelmRelease",
        "name": operator.release,
        "namespace": operator.namespace,
        "values": files.operator_values(spec),
    }
    hosts = [_host(lab, host, facts[host.name], common) for host in lab.hosts]
    return [*hosts, release]


def _host(lab: Lab, host: Host, fact: Facts, common: Mapping[str, str]) -> dict[str, Any]:
    written = {SYSCTL_FILE: files.limits(fact.sysctls).decode(), **common}
    if fact.snap is None:
        launch = files.launch(is_first=host is lab.first, mirrors=lab.mirrors)
        written[LAUNCH_FILE] = launch.decode()
    return {
        "kind": "Host",
        "name": host.name,
        "address": host.ssh,
        "microk8s": lab.release,
        "files": written,
    }
