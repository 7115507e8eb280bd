"""Push an image: Docker sends it, the registry proves that it has it, and what clusters run is its digest.

What a push that failed has sent stays in the registry, so the next one sends the rest. No cluster uses any of it
before the proof: the tag is set last, and clusters run the digest that it leads to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from trainyard.images.access import Access
from trainyard.images.proof import Proof, is_image, prove, sizes
from trainyard.images.transfer import send
from trainyard.images.types import Built, Pushed
from trainyard.seams import ecr
from trainyard.seams.docker import images as docker_images
from trainyard.seams.docker.engine import Engine
from trainyard.seams.registry_manifest import Manifest
from trainyard.seams.registry_refusals import MEND, DamagedError, FixedTagError, RegistryError
from trainyard.steps import YES, Answer, Clock, Step, no

# Every change is proven as soon as it is made: nothing is waited for.
DEADLINE = 5.0


class Pushing:
    """One push: its steps, and what came of them. `report` hears how far it is."""

    def __init__(
        self,
        built: Built,
        access: Access,
        engine: Engine,
        *,
        report: Callable[[str], None] = lambda text: None,
        clock: Clock | None = None,
    ) -> None:
        self._built = built
        self._access = access
        self._engine = engine
        self._report = report
        self._clock = clock or Clock()
        self._name = access.registry.repository(built.name)
        self._alias = built.alias_local.rpartition(":")[2]
        self._reference = access.name(built.name, built.content)
        self._sent: frozenset[str] | None = None
        self._alias_is_fixed = False

    def steps(self) -> list[Step]:
        """Return what makes the registry hold the image: its repository (AWS), its layers and tag, its alias."""
        registry = self._access.registry
        push = Step(f"Push {self._reference}", self._is_there, self._push, deadline=DEADLINE)
        alias = Step(f"Tag it {self._alias}", self._has_alias, self._set_alias, deadline=DEADLINE, after=push.title)
        repository = Step(
            f"Make the repository {self._name} in ECR", self._has_repository, self._make_repository, deadline=DEADLINE
        )
        return [repository, push, alias] if registry.login == "ecr" else [push, alias]

    def result(self) -> Pushed:
        """Return what the registry has, once the steps are done."""
        manifest = self._manifest()
        sent = self._sent_sizes(manifest)
        around = len(manifest.content) + (manifest.config.size if manifest.config else 0)
        return Pushed(
            reference=self._access.by_digest(self._built.name, manifest.digest),
            tag=self._reference,
            alias=self._reference if self._alias_is_fixed else self._access.name(self._built.name, self._alias),
            digest=manifest.digest,
            bytes_sent=sum(sent.values()) + (0 if self._sent is None else around),
            layers_sent=len(sent),
            layers_there=len({layer.digest for layer in manifest.layers}) - len(sent),
        )

    def _is_there(self) -> Answer:
        proof = self._prove()
        return YES if proof.holds else no("; ".join(proof.missing))

    def _push(self) -> None:
        """Give the image the registry's name, send it, and ask the registry for all of it."""
        known = self._known_sizes()
        docker_images.tag(self._engine, self._built.image_id, as_=self._reference)
        self._sent = send(self._engine, self._reference, self._access, report=self._report, clock=self._clock)
        proof = self._prove(known)
        if not proof.holds:
            self._forget(proof)
            raise DamagedError(
                f"registry {self._access.registry.address} took {self._reference}, and does not hold it",
                where="; ".join(proof.missing),
                hint=MEND,
            )

    def _known_sizes(self) -> dict[str, int]:
        """Return the sizes of the layers that this image and the one before it had when they were pushed."""
        before = (self._before(tag) for tag in (self._alias, self._built.content))
        return {digest: size for manifest in before for digest, size in sizes(manifest).items()}

    def _before(self, tag: str) -> Manifest | None:
        """Return what a tag leads to now; what is damaged is about to be replaced, and tells nothing."""
        try:
            return self._access.api.manifest(self._name, tag)
        except DamagedError:
            return None

    def _forget(self, proof: Proof) -> None:
        """Let no tag lead to an image of ours that is not whole; a registry may not allow that."""
        with suppress(RegistryError):
            if proof.manifest and is_image(proof.manifest, self._built.image_id):
                self._access.api.delete_manifest(self._name, proof.manifest.digest)

    def _has_alias(self) -> Answer:
        if self._alias_is_fixed:
            return Answer(True, "the registry does not let it move")
        wanted = self._manifest().digest
        before = self._before(self._alias)
        digest = before.digest if before else None
        return YES if digest == wanted else no(f"{self._alias} is {digest or 'not there'}")

    def _set_alias(self) -> None:
        """Let people's name for it lead here too; where tags are immutable, only its first image has it."""
        try:
            self._access.api.put_manifest(self._name, self._alias, self._manifest())
        except FixedTagError:
            self._alias_is_fixed = True

    def _has_repository(self) -> Answer:
        address = self._access.registry.address
        return YES if ecr.has_repository(address, self._name, self._engine.environ) else no("there is none")

    def _make_repository(self) -> None:
        ecr.make_repository(self._access.registry.address, self._name, self._engine.environ)

    def _prove(self, known: Mapping[str, int] | None = None) -> Proof:
        api, tag = self._access.api, self._built.content
        return prove(api, self._name, tag, image_id=self._built.image_id, known=known)

    def _manifest(self) -> Manifest:
        """Return what the tag leads to now. Raises DamagedError if it is gone again."""
        found = self._access.api.manifest(self._name, self._built.content)
        if found is None:
            raise DamagedError(
                f"{self._reference} is not in the registry any more", hint="Push it again: invoke image.push"
            )
        return found

    def _sent_sizes(self, manifest: Manifest) -> dict[str, int]:
        """Return digest and size of each layer that was sent; Docker reports short ids, of contents or of blobs."""
        facts = docker_images.inspect(self._engine, self._built.image_id) if self._sent else None
        contents = facts.layers if facts and len(facts.layers) == len(manifest.layers) else ()
        contents = contents or tuple(layer.digest for layer in manifest.layers)
        return {
            layer.digest: layer.size
            for content, layer in zip(contents, manifest.layers, strict=True)
            if self._sent and {_short(content), _short(layer.digest)} & self._sent
        }


def _short(digest: str) -> str:
    return digest.partition(":")[2][:12]
