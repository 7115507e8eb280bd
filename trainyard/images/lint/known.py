"""What was found out before: an image id and a layer's diff id name their content, so it cannot have changed."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainyard import paths
from trainyard.images.lint.probe import Probed, script


@dataclass(frozen=True)
class Known:
    """Files of one directory, named by what they answer; one that is lost or damaged is found out again."""

    directory: Path

    def probed(self, image_id: str, asked: Sequence[str]) -> Probed | None:
        """Return what the image said when it was asked the same."""
        found = self._read(_probe_key(image_id, asked))
        try:
            return Probed(**found)
        except TypeError:
            return None

    def keep_probed(self, image_id: str, asked: Sequence[str], probed: Probed) -> None:
        """Remember what an image said."""
        self._write(_probe_key(image_id, asked), asdict(probed))

    def _read(self, key: str) -> Any:
        """Return what was written, or nothing that anybody would take for it."""
        try:
            return json.loads((self.directory / f"{key}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}

    def _write(self, key: str, found: Mapping[str, object]) -> None:
        """Write as a whole or not at all; a directory that cannot be written only costs time the next time."""
        with suppress(OSError):
            self.directory.mkdir(parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(dir=self.directory)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(found, file)
            Path(name).replace(self.directory / f"{key}.json")


def earlier(environ: Mapping[str, str]) -> Known:
    """Return what this user's earlier lints found."""
    return Known(paths.cache_home(environ) / "lint")


def _probe_key(image_id: str, asked: Sequence[str]) -> str:
    return _key("image", image_id, script(), *asked)


def _key(kind: str, *parts: str) -> str:
    return f"{kind}-{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]}"
