"""Push an image: the registry confirms the digest that clusters then run.

Layers of a failed push stay in the registry, so the next push sends only the
rest. No cluster uses an incomplete push: clusters find an image by tags that
are set last.
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
# Seconds. A registry confirms an image at once after the push, or not at all.
HELD_SECONDS = 5.0


@dataclass(frozen=True)
class Pushed:
    """A pushed image. Clusters run `reference`, which includes the digest.

    `layers_there` counts layers that the registry already had.
    """

    reference: str
    tag: str
    alias: str
    digest: str
    bytes_sent: int
    layers_sent: int
    layers_there: int


@dataclass
class Pushing:
    """One push and its result; `report` gets a step's title and progress."""

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
        """Return the steps: a repository (in ECR), the push, other tags."""
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
        """Return the pushed image; call it after the steps."""
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
        """Say whether the registry's tag is this image.

        The engine's image id is the digest of the image's config; with
        containerd's image store, the id is the digest of the manifest.
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
        # Docker retries a layer five times in a minute, and does not say why. `try_upload` asks the
        # registry itself for the reason.
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
        """Set a tag; note the tag if the registry does not let it move."""
        try:
            self.access.api.put_manifest(self._name, tag, self._held[-1])
        except FixedTagError:
            self._fixed.add(tag)

    def _sent_sizes(self, manifest: Manifest) -> dict[str, int]:
        """Return the digest and size of each layer that Docker sent.

        Docker reports only short digests, either of the compressed layers or of
        their content.
        """
        facts = None
        if self._sent:
            facts = docker_images.inspect(self.engine, self.built.image_id)
        if facts and len(facts.layers) == len(manifest.layers):
            contents = facts.layers
        else:
            contents = ()
        names = contents or tuple(layer.digest for layer in manifest.layers)

        sent = {}
        for name, layer in zip(names, manifest.layers, strict=True):
            if {_short(name), _short(layer.digest)} & self._sent:
                sent[layer.digest] = layer.size
        return sent


def _short(digest: str) -> str:
    return digest.partition(":")[2][:12]
