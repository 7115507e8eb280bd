"""Everything that the checks look at."""

from __future__ import annotations

from dataclasses import dataclass

from trainyard.images.lint.probe import Probed
from trainyard.seams.docker.images import ImageFacts, Layer
from trainyard.spec.image import ImageFile, LintSection


@dataclass(frozen=True)
class Seen:
    """One image: what the engine knows, what it said of itself, and what is expected of it."""

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
        """Return who the image runs as, in words."""
        uid = self.probed.text("uid")
        name = self.probed.text("user") or self.image.user
        return f"{name} (uid {uid})" if name and name != uid else f"uid {uid or '?'}"

    @property
    def runs_ray(self) -> bool:
        """Say whether there is a `ray` that could be asked."""
        return bool(self.probed.text("ray.program"))

    @property
    def imports_ray(self) -> bool:
        """Say whether the Python on PATH imports Ray."""
        ended = self.probed.ended("python.ended")
        return ended is not None and ended.code == 0

    @property
    def same_python(self) -> bool | None:
        """Say whether `python` and `ray` are one Python; None if one of them did not say."""
        prefixes = [self.probed.text(key) for key in ("python.prefix", "ray.python")]
        if self.lint.python:
            prefixes.append(self.probed.text("asked.prefix"))
        return len(set(prefixes)) == 1 if all(prefixes) else None

    @property
    def wrong_interpreter(self) -> bool:
        """Say whether `ray` starts with another interpreter than image.yaml demands."""
        wanted = self.lint.ray_interpreter
        first = self.probed.text("ray.first_line").removeprefix("#!").split()
        return bool(wanted and self.runs_ray and first[:1] != [wanted])
