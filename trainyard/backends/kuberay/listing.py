"""Clusters of ours on Kubernetes, whoever made them from which file: in every namespace that the user may see."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainyard.backends.contract import Discovered, FoundCluster, Tools
from trainyard.backends.kuberay import location, naming
from trainyard.backends.kuberay.location import Location
from trainyard.errors import TrainyardError, in_a_line
from trainyard.seams.kube import config
from trainyard.seams.kube.api import Kube
from trainyard.seams.kube.errors import ForbiddenError
from trainyard.seams.kube.types import NAMESPACE, RAY_CLUSTER, Object
from trainyard.spec.cluster import ClusterSpec

# A list must not wait for a laptop's old kubeconfigs.
ANSWER_SECONDS = 3.0

# A context, and the server that it leads to.
Key = tuple[str, str]


@dataclass(frozen=True)
class Found:
    """A RayCluster with our label; `is_ready` in KubeRay's opinion."""

    name: str
    namespace: str
    context: str
    server: str
    is_ready: bool


@dataclass
class Answer:
    """What one Kubernetes said. `problem` is why it did not; `remark` what could not be looked into."""

    context: str
    server: str
    found: tuple[Found, ...] = ()
    problem: str = ""
    remark: str = ""


@dataclass(frozen=True)
class Question:
    """A Kubernetes, and the namespaces of it that cluster files name."""

    kube: Kube
    namespaces: tuple[str, ...] = field(default=())


def place(spec: ClusterSpec, tools: Tools) -> Location | TrainyardError:
    """Return where a file's cluster is, or is to be; or why nobody can tell."""
    try:
        return location.find(spec, tools, spec.kuberay)
    except TrainyardError as error:
        return error


def look(sites: Iterable[Location], environ: Mapping[str, str]) -> dict[Key, Answer]:
    """Ask through the context of every site, and the kubeconfig's current one, side by side.

    Nobody is asked to log in for a context that is merely the current one: its program may open a browser.
    """
    questions: dict[Key, Question] = {}
    for one in sites:
        known = questions.get(key(one.kube), Question(one.kube)).namespaces
        questions[key(one.kube)] = Question(one.kube, (*known, one.namespace))
    try:
        current = config.connect(environ)
        if config.find(environ).plugin is None:
            questions.setdefault(key(current), Question(current))
    except TrainyardError:
        # Without a kubeconfig there is nothing to list; files that need one say so.
        pass
    return asked(questions.values())


def key(kube: Kube) -> Key:
    """Return what tells the ways to ask apart: of two contexts on one server, one user may see more."""
    return kube.context, kube.server


def asked(
    questions: Iterable[Question], *, seconds: float = ANSWER_SECONDS, now: Callable[[], float] = time.monotonic
) -> dict[Key, Answer]:
    """Return the answers by context and server; who says nothing within some seconds is not waited for."""
    every = list(questions)
    answers: dict[Key, Answer] = {}

    def ask(question: Question) -> None:
        answers[key(question.kube)] = _answer(question)

    # Not a pool: Python would wait for its threads at the end.
    threads = [threading.Thread(target=ask, args=(one,), daemon=True) for one in every]
    for thread in threads:
        thread.start()
    give_up = now() + seconds
    for thread in threads:
        thread.join(max(0.0, give_up - now()))
    said = f"no answer within {seconds:g} s"
    return {
        key(one.kube): answers.get(key(one.kube), Answer(one.kube.context, one.kube.server, problem=said))
        for one in every
    }


def _answer(question: Question) -> Answer:
    kube = question.kube
    try:
        found, remark = _clusters(question)
    except TrainyardError as error:
        return Answer(kube.context, kube.server, problem=error.what)
    return Answer(kube.context, kube.server, tuple(_found(kube, one) for one in found), remark=remark)


def _clusters(question: Question) -> tuple[list[Object], str]:
    """Return the RayClusters with our label, and which namespaces were left out."""
    kube = question.kube
    try:
        return kube.list(RAY_CLUSTER, labels=naming.CLUSTER), ""
    except ForbiddenError:
        spaces = _namespaces(kube) or tuple(dict.fromkeys((kube.namespace, *question.namespaces)))
    found: list[Object] = []
    seen = []
    for space in spaces:
        try:
            found += kube.list(RAY_CLUSTER, namespace=space, labels=naming.CLUSTER)
            seen.append(space)
        except ForbiddenError:
            continue
    listed = f"only in {', '.join(seen)}" if seen else "in no namespace"
    return found, f"{kube.place}: you may list RayClusters {listed}"


def _namespaces(kube: Kube) -> tuple[str, ...]:
    try:
        return tuple(one["metadata"]["name"] for one in kube.list(NAMESPACE))
    except ForbiddenError:
        return ()


def _found(kube: Kube, one: Object) -> Found:
    metadata = one["metadata"]
    is_ready = (one.get("status") or {}).get("state") == "ready" and not metadata.get("deletionTimestamp")
    return Found(metadata["name"], metadata["namespace"], kube.context, kube.server, is_ready)


def discover(
    clusters: Sequence[tuple[ClusterSpec, Tools]], states: Sequence[Path], environ: Mapping[str, str]
) -> Discovered:
    """Return where these clusters are, and the RayClusters with our label that are none of them."""
    if not clusters and not _has_kubeconfig(environ):
        return Discovered()
    places = {spec.name: place(spec, tools) for spec, tools in clusters}
    sites = {name: one for name, one in places.items() if not isinstance(one, TrainyardError)}
    answers = look(sites.values(), environ)
    problems = {name: in_a_line(one) for name, one in places.items() if isinstance(one, TrainyardError)}
    for name, one in sites.items():
        answer = answers[key(one.kube)]
        if answer.problem:
            problems[name] = f"Kubernetes of context {answer.context}: {answer.problem}"
    known = {(one.kube.server, one.namespace, one.name) for one in sites.values()}
    every = [one for answer in answers.values() for one in answer.found]
    # Several contexts may lead to one server.
    others = {(one.server, one.namespace, one.name): one for one in reversed(every)}
    silent = [
        f"Kubernetes of context {one.context} ({one.server}): {one.problem}" for one in answers.values() if one.problem
    ]
    return Discovered(
        {name: _located(one.namespace, one.kube.context) for name, one in sites.items()},
        problems,
        tuple(_other(one) for where, one in sorted(others.items()) if where not in known),
        (*silent, *(one.remark for one in answers.values() if one.remark)),
    )


def _other(one: Found) -> FoundCluster:
    context = f" --set kuberay.context={one.context}" if one.context else ""
    flags = f"--set kuberay.namespace={one.namespace}{context}"
    return FoundCluster(one.name, _located(one.namespace, one.context), one.is_ready, flags)


def _located(namespace: str, context: str) -> str:
    return f"namespace {namespace}" + (f" of context {context}" if context else "")


def _has_kubeconfig(environ: Mapping[str, str]) -> bool:
    home = Path(environ.get("HOME") or Path.home())
    return bool(environ.get("KUBECONFIG")) or (home / ".kube" / "config").is_file()
