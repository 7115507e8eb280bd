"""Short errands on Kubernetes: a pod each, all side by side, and none of them is left, whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from trainyard.backends import wording
from trainyard.backends.kuberay import diagnosis, pods, snapshot
from trainyard.backends.kuberay.debounce import Debounce
from trainyard.backends.kuberay.errands import errand_pod
from trainyard.backends.kuberay.site import Site
from trainyard.backends.kuberay.snapshot import Snapshot
from trainyard.errors import NotReadyError, OutsideError, TrainyardError
from trainyard.seams.kube.errors import GoneError
from trainyard.seams.kube.types import POD, Object
from trainyard.steps import Clock

# Isaac Sim's image is 20 GB: an hour at 50 Mbit/s.
PULL_SECONDS = 2 * 3600
# `import torch` from an image that was unpacked just now, on a busy disk.
RUN_SECONDS = 300.0
POLL_SECONDS = 0.5
# How long the API server may be away.
AWAY_SECONDS = 60.0
REMOVE_SECONDS = 20.0
# How a container ends that ran; any other reason is Kubernetes' (OOMKilled, StartError, ContainerCannotRun).
_RAN = ("Completed", "Error")

Report = Callable[[str], None]


@dataclass(frozen=True)
class Errand:
    """A pod, and what messages call it: the host, or the group that it stands for."""

    title: str
    pod: Object


@dataclass(frozen=True)
class Outcome:
    """How an errand ended: an exit code and last words, or an error. `host` is where it ran, "" if nowhere."""

    title: str
    host: str
    seconds: float
    code: int | None = None
    said: str = ""
    error: TrainyardError | None = None


def run(
    site: Site,
    errands: Sequence[Errand],
    *,
    purpose: str,
    report: Report = lambda text: None,
    clock: Clock | None = None,
) -> list[Outcome]:
    """Run every errand to its end and return the outcomes in their order; raise what the API refuses to all of them."""
    clock = clock or Clock()
    running = Errands(site, errands, purpose, clock=clock)
    told = ""
    try:
        running.begin()
        while not running.look():
            if running.words != told:
                told = running.words
                report(told)
            clock.sleep(POLL_SECONDS)
    finally:
        running.remove()
    return running.outcomes()


def remove(site: Site, purpose: str, *, clock: Clock | None = None) -> None:
    """Remove the pods of a purpose and wait until they are gone; one on a silent node may take longer than we wait."""
    clock = clock or Clock()
    give_up = clock.now() + REMOVE_SECONDS
    asked: set[str] = set()
    while left := site.kube.list(POD, namespace=site.namespace, labels=errand_pod.of_purpose(site.name, purpose)):
        for one in left:
            if pods.name(one) not in asked:
                site.kube.delete(POD, pods.name(one), namespace=site.namespace)
                asked.add(pods.name(one))
        if clock.now() > give_up:
            return
        clock.sleep(POLL_SECONDS)


class Errands:
    """Errands under way; whoever begins them removes them, even when interrupted. `words` say how far they are."""

    def __init__(self, site: Site, errands: Sequence[Errand], purpose: str, *, clock: Clock | None = None) -> None:
        self.words = ""
        self._site = site
        self._errands = {pods.name(one.pod): one for one in errands}
        self._purpose = purpose
        self._labels = errand_pod.of_purpose(site.name, purpose)
        self._clock = clock or Clock()
        self._began = self._seen_at = self._clock.now()
        self._done: dict[str, Outcome] = {}
        self._debounces = {name: Debounce(now=self._clock.now) for name in self._errands}
        self._runs_since: dict[str, float] = {}

    def begin(self) -> None:
        """Make every pod; what the API refuses one, it refuses all. What an earlier run left is removed first."""
        remove(self._site, self._purpose, clock=self._clock)
        self._began = self._seen_at = self._clock.now()
        for one in self._errands.values():
            self._site.kube.create(POD, one.pod, namespace=self._site.namespace)

    def look(self) -> bool:
        """Look at the pods once; say whether each has ended, or has a reason why it does not."""
        try:
            found = {pods.name(one): one for one in self._list()}
            facts = self._facts(found.values())
        except GoneError:
            if self._clock.now() - self._seen_at > AWAY_SECONDS:
                raise
            return False
        self._seen_at = self._clock.now()
        for name in [one for one in self._errands if one not in self._done]:
            self._look(name, found.get(name), facts)
        self.words = self._words(found)
        return len(self._done) == len(self._errands)

    def remove(self) -> None:
        """Remove the pods; if that breaks, it must not hide why they are removed: the next run removes what is left."""
        with suppress(TrainyardError):
            remove(self._site, self._purpose, clock=self._clock)

    def so_far(self) -> list[Outcome | None]:
        """Return how those ended that have, None for the others."""
        return [self._done.get(name) for name in self._errands]

    def outcomes(self) -> list[Outcome]:
        """Return how each ended."""
        return [self._done[name] for name in self._errands]

    def _look(self, name: str, pod: Object | None, facts: Snapshot) -> None:
        if pod is None or pods.is_leaving(pod):
            self._end(name, pod, error=self._gone(name))
            return
        ended = next((one.ended for one in pods.containers(pod) if one.ended), None)
        if ended and ended.reason in _RAN:
            self._end(name, pod, code=ended.code, said=ended.message)
            return
        found = diagnosis.of_pod(pod, facts)
        worn = self._debounces[name].expired([found] if found else [])
        has_failed = pods.phase(pod) == "Failed"
        # It is not started again: what is wrong stays.
        if found and (worn or has_failed):
            self._end(name, pod, error=diagnosis.to_error(worn or found, self._place))
        elif has_failed:
            status = pod.get("status") or {}
            said = f"{status.get('reason') or 'no reason given'}: {status.get('message') or ''}".rstrip(": ")
            self._end(name, pod, error=OutsideError(f"{self._title(name)}: its pod failed", where=said))
        elif late := self._late(name, pod):
            self._end(name, pod, error=late)

    def _late(self, name: str, pod: Object) -> NotReadyError | None:
        now = self._clock.now()
        if pods.phase(pod) != "Running":
            if now - self._began < PULL_SECONDS:
                return None
            return NotReadyError(f"{self._title(name)}: no image after {PULL_SECONDS // 60} minutes", where=self._place)
        since = self._runs_since.setdefault(name, now)
        if now - since < RUN_SECONDS:
            return None
        command = " ".join(pod["spec"]["containers"][0]["command"])[:80]
        return NotReadyError(
            f"{self._title(name)}: it did not end within {RUN_SECONDS:.0f} s", where=f"{self._place}: {command}"
        )

    def _end(
        self,
        name: str,
        pod: Object | None,
        *,
        code: int | None = None,
        said: str = "",
        error: TrainyardError | None = None,
    ) -> None:
        host = pods.host(pod) if pod else ""
        seconds = self._clock.now() - self._began
        self._done[name] = Outcome(self._title(name), host, seconds, code, said.strip(), error)

    def _gone(self, name: str) -> OutsideError:
        return OutsideError(
            f"{self._title(name)}: its pod was removed while it ran",
            where=f"{self._place}: {name}",
            hint="Did somebody else give the same command, or was the node drained? Repeat it.",
        )

    def _words(self, found: Mapping[str, Object]) -> str:
        """Return which hosts still do what."""
        doing: dict[str, list[str]] = {}
        for name in self._errands:
            if name not in self._done and name in found:
                one = found[name]
                word = "runs on" if pods.phase(one) == "Running" else "pulls on" if pods.host(one) else "no room yet on"
                doing.setdefault(word, []).append(self._title(name))
        return ", ".join(f"{word} {wording.named(titles)}" for word, titles in doing.items())

    def _title(self, name: str) -> str:
        return self._errands[name].title

    @property
    def _place(self) -> str:
        return f"namespace {self._site.namespace}"

    def _list(self) -> list[Object]:
        return self._site.kube.list(POD, namespace=self._site.namespace, labels=self._labels)

    def _facts(self, found: Iterable[Object]) -> Snapshot:
        kube, namespace = self._site.kube, self._site.namespace
        return snapshot.of_pods(kube, namespace, found, name=lambda pod: f"the pod on {self._title(pods.name(pod))}")
