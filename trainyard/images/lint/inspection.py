"""Everything that the checks look at."""

from __future__ import annotations

from dataclasses import dataclass

from trainyard.images.lint.probe import Probed
from trainyard.seams.docker.images import ImageFacts, Layer
from trainyard.spec.image import ImageFile, LintSection


@dataclass(frozen=True)
class Inspection:
    """One image: what the engine knows, what it printed about itself, and what its image.yaml expects."""

    reference: str
    file: ImageFile | None
    ray_version: str
    image: ImageFacts
    history: tuple[Layer, ...]
    probed: Probed

    @property
    def lint(self) -> LintSection:
        """Return what image.yaml asks; nothing for an image that has none."""
        return self.file.lint if self.file else LintSection()

    @property
    def user(self) -> str:
        """Return what the image runs as, in words."""
        uid = self.probed.text("uid")
        name = self.probed.text("user") or self.image.user
        return f"{name} (uid {uid})" if name and name != uid else f"uid {uid or '?'}"
