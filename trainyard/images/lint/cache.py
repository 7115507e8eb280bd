"""What images printed about themselves before: an image id names its content, so it cannot have changed."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from trainyard import paths
from trainyard.images.lint.probe import Probed, script


def find(environ: Mapping[str, str], image_id: str, asked: Sequence[str]) -> Probed | None:
    """Return what the image printed when it was asked the same; what is lost or damaged is found out again."""
    try:
        return Probed(**json.loads(_file(environ, image_id, asked).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def keep(environ: Mapping[str, str], image_id: str, asked: Sequence[str], probed: Probed) -> None:
    """Write it as a whole or not at all; a directory that cannot be written only costs time the next time."""
    file = _file(environ, image_id, asked)
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=file.parent)
        with os.fdopen(descriptor, "w", encoding="utf-8") as part:
            json.dump(asdict(probed), part)
        Path(name).replace(file)


def _file(environ: Mapping[str, str], image_id: str, asked: Sequence[str]) -> Path:
    key = hashlib.sha256(json.dumps([image_id, script(), *asked]).encode()).hexdigest()[:32]
    return paths.cache_home(environ) / "lint" / f"{key}.json"
