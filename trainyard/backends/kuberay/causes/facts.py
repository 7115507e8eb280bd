"""All that Kubernetes says about what should run, as it was read at one moment; and a reason why it does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trainyard.backends.kuberay import names
from trainyard.errors import OutsideError, TrainyardError

Object = Mapping[str, Any]


@dataclass(frozen=True)
class Host:
    """A Kubernetes node, and the lease by which its kubelet says that it lives; None where that cannot be seen."""

    node: Object
    lease: Object | None = None


def _no_nodes() -> Mapping[str, Host | None]:
    return {}


def _no_words(pod: Object, container: str, former: bool) -> str:
    return ""


def _no_probe(pod: Object) -> str:
    return ""


def _resolves(pod: Object) -> bool:
    return True


def _silent() -> str:
    return ""


@dataclass(frozen=True)
class Facts:
    """What was read. `owner` is the RayCluster, or the Deployment of the operator; `head` the head's pod.

    `events` are theirs and those of pods that are not ready. Asked only where they matter: `nodes`, the Kubernetes
    nodes of such pods by name, None for one that is gone, {} where the user may not see them; `words`, the last lines
    of a pod's container, or of its former run; `probe`, what a worker that waits for its head sees.
    `resolves` says whether such a worker finds the head's address, True where that cannot be asked.
    `fresh` are the events since somebody waits; `spare` the uids of pods that nobody waits for. `name` is what a pod is
    called in messages; `wait_for_machines` is how long it may find no room, in seconds.
    """

    pods: tuple[Object, ...]
    events: tuple[Object, ...] = ()
    owner: Object | None = None
    head: Object | None = None
    nodes: Callable[[], Mapping[str, Host | None]] = _no_nodes
    words: Callable[[Object, str, bool], str] = _no_words
    probe: Callable[[Object], str] = _no_probe
    resolves: Callable[[Object], bool] = _resolves
    name: Callable[[Object], str] = names.node_name
    fresh: tuple[Object, ...] = ()
    spare: frozenset[str] = frozenset()
    wait_for_machines: float = 0.0


@dataclass(frozen=True)
class Cause:
    """Why something does not run; it is an error once it was seen for `patience` seconds.

    `about` names the kind of cause, for one whose words may change while it lasts.
    `what` is the sentence after the names of the nodes (`who`), or all of it without any: nodes with the same sentence
    have the same cause. `brief` are a few words for a table; `said` is what Kubernetes says, word by word; `words` asks
    for the last lines of a container. `is_hopeless` can be asked before patience is over: whether waiting is in vain.
    """

    what: str
    brief: str
    about: str = ""
    kind: type[TrainyardError] = OutsideError
    hint: str | None = None
    said: str = ""
    words: Callable[[], str] = _silent
    patience: float = 0.0
    is_hopeless: Callable[[], bool] | None = None
    who: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
