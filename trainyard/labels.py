"""The labels of every image that we build: `image.push`, `image.lint` and the registry find ours by them."""

from __future__ import annotations

OCI = "org.opencontainers.image"
BASE = f"{OCI}.base.name"
IMAGE = "io.trainyard.image"
# The hash that is also the image's tag, and the same without the base: what a machine without the base can compute.
CONTENT = "io.trainyard.content"
SOURCE = "io.trainyard.source"
RAY = "io.trainyard.ray"
