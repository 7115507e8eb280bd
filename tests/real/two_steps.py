"""A backend of two steps and then kuberay: it makes a Kubernetes, which here is a kubeconfig, and calls KubeRay's."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from trainyard.backends import kuberay
from trainyard.backends.contract import ClusterStatus, Tools
from trainyard.seams.kube import config
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.kubernetes import KuberaySection
from trainyard.steps import Answer, Stage, Step


def up_steps(spec: ClusterSpec, tools: Tools) -> Sequence[Step | Stage]:
    made = _kubeconfig(tools)

    def answers() -> Answer:
        return Answer(config.connect(tools.environ, kubeconfig=made).answers())

    def make_it() -> None:
        shutil.copy(tools.environ["OF_THE_BED"], made)

    make = Step("Make the hosts a Kubernetes", lambda: Answer(Path(made).exists()), make_it)
    wait = Step("Wait for its API", answers, lambda: None, after=make.title)
    return [make, wait, Stage("KubeRay", lambda: kuberay.up_steps(spec, tools, _section(spec, tools)), wait.title)]


def down_steps(spec: ClusterSpec, tools: Tools, *, purge: bool) -> Sequence[Step | Stage]:
    return kuberay.down_steps(spec, tools, _section(spec, tools), purge=purge)


def status(spec: ClusterSpec, tools: Tools) -> ClusterStatus:
    return kuberay.status(spec, tools, _section(spec, tools))


def _section(spec: ClusterSpec, tools: Tools) -> KuberaySection:
    return spec.kuberay.model_copy(update={"kubeconfig": _kubeconfig(tools), "context": None})


def _kubeconfig(tools: Tools) -> str:
    return tools.environ["HOME"] + "/made.kubeconfig"
