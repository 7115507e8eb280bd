"""An image of a few bytes, to send through a registry: it proves the way, not the image."""

from __future__ import annotations

import io
import tarfile

from trainyard.seams.docker_engine import Engine, refusals
from trainyard.seams.docker_images import split_tag

CONTENT = b"Trainyard pulled this to prove that Docker here can.\n"


def make(engine: Engine, reference: str) -> None:
    """Make an image with one small text file under this name, which must have a tag."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        member = tarfile.TarInfo("README")
        member.size = len(CONTENT)
        archive.addfile(member, io.BytesIO(CONTENT))
    repository, tag = split_tag(reference)
    with refusals(f"make the image {reference}"):
        engine.api.import_image_from_data(packed.getvalue(), repository=repository, tag=tag)
