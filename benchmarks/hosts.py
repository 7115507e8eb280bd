"""Measure hosts by SSH: a thousand that are asked; two and four that become a cluster.

The latter need root, on Debian or Ubuntu.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.measure import INVOKE, Measured, has_engine, seconds_of, write_tasks
from tests.bed import bed, chart, hosts, microk8s, programs, publishing
from tests.bed.engine import BedEngine
from tests.bed.many_hosts import many_hosts
from tests.bed.places import free_port

THOUSAND = 1000
IMAGE = "trainyard-bed/ray:1"


def measure(directory: Path) -> Iterator[Measured]:
    """Yield the measurements that are possible on this machine."""
    if sys.platform != "linux":
        print("(hosts are left out: they need Linux)")
        return

    yield from _thousand(directory / "many")
    if not has_engine() or programs.missing():
        print("(bare hosts are left out: they need root, a Docker engine and Go; make test-tools)")
        return

    with bed.shared_engine() as engine:
        address = f"{engine.bridge_ip}:{free_port()}"
        publishing.publish(engine, address, IMAGE, owner=hosts.this_process())
        # Not measured: the first round reads the bed's parts from disk.
        _up(engine, directory / "first", address, count=1)
        two, again = _up(engine, directory / "two", address, count=2)
        four, _ = _up(engine, directory / "four", address, count=4)

    yield Measured("cluster.up, 4 bare hosts / 2 bare hosts", four, two, bar="<= 1.3x")
    yield Measured("cluster.up, 2 hosts, again", again, bar="<= 5 s")


def _thousand(home: Path) -> Iterator[Measured]:
    home.mkdir()
    with many_hosts(home, count=THOUSAND) as made:
        _write_cluster(
            home, {"image": "registry.invalid/ray:1", "microk8s": {"hosts": _named(made.ssh())}}
        )
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = _invoke(home, {"HOME": str(home)}, "cluster.plan")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    yield Measured("cluster.plan, 1,000 hosts by SSH", seconds, bar="<= 30 s")
    yield Measured("of it CPU", after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def _up(engine: BedEngine, home: Path, registry: str, *, count: int) -> tuple[float, float]:
    """Make two Ray nodes on bare hosts; return the seconds of that, and of a repeat."""
    chart.write(home / "chart")
    with microk8s.bare_hosts(engine, home, count=count) as made:
        document = {
            "image": f"{registry}/{IMAGE}",
            "registry": {"address": registry, "insecure": True},
            "microk8s": {"hosts": _named([host.ssh for host in made])},
            "kuberay": {
                "operator": {"chart": str(home / "chart")},
                "requests": {"cpus": 0.1, "memory": "128MiB"},
            },
        }

        _write_cluster(home, document)
        environ = hosts.environ(home)
        environ["PATH"] = f"{programs.commands()}:{environ['PATH']}"
        up = _invoke(home, environ, "cluster.up")
        again = min(_invoke(home, environ, "cluster.up") for _ in range(3))

        return up, again


def _write_cluster(home: Path, document: Mapping[str, object]) -> None:
    common = {"name": "bench", "backend": "microk8s", "head": {"cpus": 1, "memory": "1GiB"}}
    workers = [{"name": "worker", "count": 1, "cpus": 1, "memory": "1GiB"}]
    (home / "cluster.yaml").write_text(json.dumps({**common, "workers": workers, **document}))
    write_tasks(home)


def _named(addresses: list[str]) -> list[dict[str, str]]:
    return [{"address": address} for address in addresses]


def _invoke(home: Path, environ: dict[str, str], *words: str) -> float:
    env = {**os.environ, "XDG_STATE_HOME": str(home / "state"), **environ}
    return seconds_of([*INVOKE, *words, "-f", "cluster.yaml"], env=env, cwd=home)
