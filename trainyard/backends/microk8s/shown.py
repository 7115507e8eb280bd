"""What `cluster.plan --json` shows of hosts: the files that each would get, filled in."""

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
    """Return a document of each host, and one of the KubeRay operator's values. Asks the hosts.

    A host's launch configuration is among its files while MicroK8s is to be installed: nothing
    reads it later.
    """
    facts = lab.facts()
    lab.put_members_first()
    known = {}

    for one in files.registries(spec, environ):
        for path, text in one.files.items():
            known[path] = text.decode()

    names = hosts_file.block(host_names(lab, facts))
    hosts = [
        _host(lab, host, facts[host.name], {hosts_file.PATH: names, **known}) for host in lab.hosts
    ]
    operator = spec.kuberay.operator
    values = files.operator_values(spec)

    return [
        *hosts,
        {
            "kind": "HelmRelease",
            "name": operator.release,
            "namespace": operator.namespace,
            "values": values,
        },
    ]


def _host(lab: Lab, host: Host, fact: Facts, of_all: Mapping[str, str]) -> dict[str, Any]:
    written = {SYSCTL_FILE: files.limits(fact.sysctls).decode(), **of_all}
    if fact.snap is None:
        written[LAUNCH_FILE] = files.launch(
            is_first=host is lab.first, mirrors=lab.mirrors
        ).decode()
    return {
        "kind": "Host",
        "name": host.name,
        "address": host.ssh,
        "microk8s": lab.release,
        "files": written,
    }
