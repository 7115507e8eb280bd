"""Push an image: Docker sends it, the registry confirms it, and clusters run its digest.

The layers of a push that failed stay in the registry, so the next one sends the rest. No cluster
uses any of it before: the tags by which one is found are set last, and clusters run the digest that
they lead to.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trainyard.images.build import Built, Report
from trainyard.images.content import source_tag
from trainyard.registry.access import Access
from trainyard.seams import ecr
from trainyard.seams.docker import images as docker_images
from trainyard.seams.docker import transfer
from trainyard.seams.docker.engine import Engine
from trainyard.seams.registry.api import Manifest
from trainyard.seams.registry.errors import FixedTagError
from trainyard.steps import YES, Answer, Step, no

# The id of the step after which the registry holds the image.
_PUSH = "push"
# A registry has what it took at once, or not at all.
HELD_SECONDS = 5.0


@dataclass(frozen=True)
class Pushed:
    """An image that a registry has. `reference` names it by its digest, which clusters run."""

    reference: str
    tag: str
    alias: str
    digest: str
    bytes_sent: int
    layers_sent: int
    layers_there: int


@dataclass
class Pushing:
    """One push: its steps, and what came of them. `report` hears how far it is."""

    built: Built
    access: Access
    engine: Engine
    report: Report = lambda title, text: None
    _sent: set[str] = field(default_factory=set)
    _fixed: set[str] = field(default_factory=set)
    _held: list[Manifest] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._name = self.access.registry.repository(self.built.name)
        self._alias = self.built.alias_local.rpartition(":")[2]
        self._reference = self.access.name(self.built.name, self.built.content)
        self._title = f"Push {self._reference}"

    def steps(self) -> list[Step]:
        """Return the steps of a push: a repository (AWS), the image and its tag, other tags."""
        push = Step(_PUSH, self._title, self._is_held, self._push, deadline=HELD_SECONDS)
        tags = [self._tag_step(tag) for tag in (self._alias, source_tag(self.built.source))]
        if self.access.registry.login != "ecr":
            return [push, *tags]
        where = self.access.registry.address, self._name, self.engine.environ
        repository = Step(
            "ecr-repository",
            f"Make the repository {self._name} in ECR",
            lambda: YES if ecr.has_repository(*where) else no("there is none"),
            lambda: ecr.make_repository(*where),
        )
        return [repository, push, *tags]

    def result(self) -> Pushed:
        """Return what the registry has, once the steps are done."""
        manifest = self._held[-1]
        sent = self._sent_sizes(manifest)
        if self._alias in self._fixed:
            alias = self.built.content
        else:
            alias = self._alias

        return Pushed(
            reference=self.access.by_digest(self.built.name, manifest.digest),
            tag=self._reference,
            alias=self.access.name(self.built.name, alias),
            digest=manifest.digest,
            bytes_sent=sum(sent.values()),
            layers_sent=len(sent),
            layers_there=len({layer.digest for layer in manifest.layers}) - len(sent),
        )

    def _is_held(self) -> Answer:
        """Ask what the tag leads to: an image's id is the digest of its config, or of its manifest.

        (The latter on engines with containerd's image store.)
        """
        manifest = self.access.api.manifest(self._name, self.built.content)
        if manifest is None:
            return no(f"the registry has no {self._name}:{self.built.content}")
        if self.built.image_id in (
            manifest.digest,
            manifest.config.digest if manifest.config else None,
        ):
            self._held.append(manifest)
            return YES
        return no(f"{self._name}:{self.built.content} is another image there")

    def _push(self) -> None:
        docker_images.tag(self.engine, self.built.image_id, as_=self._reference)
        # Docker tries a layer again by itself, five times in a minute, and does not say why: the
        # registry does.
        transfer.push(
            self.engine,
            self._reference,
            login=self.access.login,
            on_progress=lambda text: self.report(self._title, text),
            on_retry=lambda: self.access.api.try_upload(self._name),
            on_sent=self._sent.add,
        )

    def _tag_step(self, tag: str) -> Step:
        return Step(
            f"tag:{tag}",
            f"Tag it {tag}",
            lambda: self._has_tag(tag),
            lambda: self._set_tag(tag),
            after=_PUSH,
        )

    def _has_tag(self, tag: str) -> Answer:
        if tag in self._fixed:
            return Answer(True, "the registry does not let it move")
        manifest = self.access.api.manifest(self._name, tag)
        if manifest and manifest.digest == self._held[-1].digest:
            return YES
        return no(f"{tag} is {manifest.digest if manifest else 'not there'}")

    def _set_tag(self, tag: str) -> None:
        """Let one more tag lead to the image; an immutable tag keeps its first image."""
        try:
            self.access.api.put_manifest(self._name, tag, self._held[-1])
        except FixedTagError:
            self._fixed.add(tag)

    def _sent_sizes(self, manifest: Manifest) -> dict[str, int]:
        """Return digest and size of each sent layer; Docker reports short ids, of either kind."""
        facts = None
        if self._sent:
            facts = docker_images.inspect(self.engine, self.built.image_id)
        if facts and len(facts.layers) == len(manifest.layers):
            contents = facts.layers
        else:
            contents = ()
        names = contents or tuple(layer.digest for layer in manifest.layers)
        return {
            layer.digest: layer.size
            for name, layer in zip(names, manifest.layers, strict=True)
            if {_short(name), _short(layer.digest)} & self._sent
        }


def _short(digest: str) -> str:
    return digest.partition(":")[2][:12]
