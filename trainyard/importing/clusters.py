"""Convert a ~/.cluster_config of Isaac Lab: one cluster file per line."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainyard import backends
from trainyard.errors import RequestError
from trainyard.spec.load import load_cluster

# Isaac Lab splits a line by spaces and takes the second and the fourth word.
_LINE = re.compile(r"name: (\S+) address: (https?://\S+)(?: .*)?")
_OPEN_TO_ALL = (
    "Isaac Lab's clusters have no token: everyone who reaches them runs code there. "
    "Better: a tunnel, and `auth: none`."
)


@dataclass(frozen=True)
class Clusters:
    """The texts of cluster files by cluster name."""

    texts: Mapping[str, str]
    notes: tuple[str, ...] = ()
    next: str = "trainyard cluster.up -f"

    @property
    def text(self) -> str:
        return "\n".join(f"# {name}.yaml\n{text}" for name, text in self.texts.items())

    def write(self, directory: Path | None) -> list[Path]:
        """Write files to `directory`, by default clusters/; return the paths.

        Raises RequestError if a file exists already, cannot be written, or is
        no valid cluster file. After an error, none of the files is left.
        """
        directory = directory or Path("clusters")
        files = {directory / f"{name}.yaml": text for name, text in self.texts.items()}
        for path in files:
            if path.exists():
                hint = "Name another directory: --output DIRECTORY"
                raise RequestError(f"{path} exists", hint=hint)

        try:
            directory.mkdir(parents=True, exist_ok=True)
            for path, text in files.items():
                path.write_text(text)
                load_cluster(path)
        except (RequestError, OSError) as error:
            for path in files:
                with contextlib.suppress(OSError):
                    path.unlink()
            if isinstance(error, OSError):
                what = f"cannot write {error.filename}: {error.strerror}"
                raise RequestError(what) from error
            raise

        return list(files)


def read(text: str, *, name: str) -> Clusters | None:
    """Convert a ~/.cluster_config; return None for any other text.

    A ~/.cluster_config has a line with `name:` and ` address:`. Raises
    RequestError unless all lines have the form `name: NAME address:
    http://IP:PORT`. Isaac Lab's own script may write broken lines.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not any(line.startswith("name: ") and " address:" in line for line in lines):
        return None

    texts: dict[str, str] = {}
    for line in lines:
        if (match := _LINE.fullmatch(line)) is None:
            raise RequestError(
                f"{name}: a line is not `name: NAME address: http://IP:PORT`: {line}"
            )

        cluster = re.sub(r"[^a-z0-9]+", "-", match[1].lower()).strip("-")
        if not cluster:
            raise RequestError(
                f"{name}: {match[1]!r} cannot be a cluster's name: it has no letter or digit"
            )
        if cluster in texts:
            raise RequestError(f"{name}: several lines name the cluster {cluster}: rename one")

        texts[cluster] = backends.file_for_address(cluster, match[2])

    has_tokens = any("token_env" in text for text in texts.values())
    return Clusters(texts, (_OPEN_TO_ALL,) if has_tokens else ())
