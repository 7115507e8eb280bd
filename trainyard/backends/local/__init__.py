"""Head and workers as real Ray processes of this machine: own ports, own directories, own token, loopback only."""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.backends import contract, node_steps, ray_nodes
from trainyard.backends.contract import ClusterStatus, LogLine, Tools, Traits
from trainyard.backends.local import node_processes, preflight
from trainyard.backends.local.machine import ThisMachine
from trainyard.backends.local.naming import ClusterFiles
from trainyard.backends.record import make_token
from trainyard.endpoint import Endpoint
from trainyard.spec.cluster import ClusterSpec
from trainyard.steps import YES, Answer, Stage, Step, no, nothing
from trainyard.wording import counted

TRAITS = Traits()
documents = contract.nothing_to_show
discover = contract.nothing_to_discover
verify = contract.no_images


def up_steps(spec: ClusterSpec, tools: Tools) -> list[Stage]:
    """Return the steps that make the cluster match its file; which they are, this machine knows."""
    ray_nodes.refuse_growing_groups(spec)
    return [Stage("Look at this machine", expand=lambda: _up_steps(ThisMachine(spec, tools)))]


def down_steps(spec: ClusterSpec, tools: Tools, *, purge: bool) -> list[Step]:
    """Return the steps that end every process and remove every file of the cluster."""
    if purge:
        raise contract.nothing_to_purge(
            tools.backend, "`cluster.down` removes everything that was made on this machine."
        )
    files = ClusterFiles(tools.state)
    recorded = node_processes.read(files)
    return [
        Step(
            f"End {counted(len(recorded), 'node')}" if recorded else "End what still runs",
            done=lambda: _nothing_runs(files),
            do=lambda: node_processes.end_cluster(files),
            disruptive=True,
        ),
        Step(
            "Remove the token, the logs and the temporary files",
            done=lambda: _no_files(files),
            do=files.remove,
        ),
    ]


def status(spec: ClusterSpec, tools: Tools) -> ClusterStatus:
    return ThisMachine(spec, tools).status()


def connect(spec: ClusterSpec, tools: Tools) -> Endpoint:
    return ThisMachine(spec, tools).endpoint()


def logs(spec: ClusterSpec, tools: Tools, *, follow: bool) -> Iterator[LogLine]:
    return ThisMachine(spec, tools).logs(follow=follow)


def _up_steps(machine: ThisMachine) -> list[Step]:
    def check() -> Answer:
        if missing := machine.difference().missing:
            preflight.check(len(missing))
        return YES

    def make() -> None:
        machine.files.prepare()
        make_token(machine.token_file)

    token = Step("Make the cluster's token", done=lambda: YES if machine.token else no("there is none"), do=make)
    check_machine = Step("Check this machine", done=check, do=nothing)
    return node_steps.steps(machine, [check_machine, *([token] if machine.spec.auth == "token" else [])])


def _nothing_runs(files: ClusterFiles) -> Answer:
    left = node_processes.of_cluster(files)
    return no(f"{len(left)} processes run") if left else YES


def _no_files(files: ClusterFiles) -> Answer:
    left = [str(path) for path in (files.state, files.temp) if path.exists()]
    return no(f"still there: {', '.join(left)}") if left else YES
