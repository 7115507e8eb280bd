"""The job's files in the form in which Ray hands them to its workers: for what a command starts
through Ray.

Ray keeps a package in its GCS while a driver uses it, or while it is pinned; a package that is
neither is gone.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import time
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

# Long against the runner's longest pause; a package outlives its run by so much.
PINNED = 600
_EVERY = 150.0
_GCS = "gcs://"
# Bytes; the head's GCS holds such a package in its memory for each attempt that runs.
OWN_LIMIT = 4 * 1024 * 1024


@dataclass(frozen=True)
class Store:
    """The packages that the GCS holds, by name; `pin` gets a URI, and for how many seconds nobody
    removes it.
    """

    get: Callable[[str], bytes | None]
    put: Callable[[str, bytes], object]
    delete: Callable[[str], object]
    pin: Callable[[str, int], object]


def environment(
    declared: Mapping[str, Any] | None,
    parts: Mapping[str, bytes],
    *,
    get: Callable[[str], bytes | None],
    put: Callable[[str, bytes], object],
) -> tuple[dict[str, Any], int]:
    """Return the runtime environment of what a job's commands start through Ray, and the bytes of
    its package.

    `declared` is the one of the tasks' own workers, whose working directory holds the job's wheels
    if there are any; this one has all the job's files too. `parts` is the job's zip as it was sent,
    by the names of its parts. `get` and `put` are of the packages that the GCS holds, by name.
    Raises LookupError if the wheels are gone.
    """
    found = dict(declared or {})
    wheels = found.get("working_dir", "").removeprefix(_GCS)
    if wheels:
        content = get(wheels)
        if content is None:
            raise LookupError(f"the uploaded wheels {wheels} are no longer on the cluster")
        package = _added(b"".join(parts.values()), content)
    elif len(parts) == 1:
        # A zip that was sent as one part is what Ray takes.
        name, package = next(iter(parts.items()))
        return {**found, "working_dir": _GCS + name}, len(package)
    else:
        package = b"".join(parts.values())

    name = f"_ray_pkg_{hashlib.sha256(package).hexdigest()[:40]}.zip"
    put(name, package)
    return {**found, "working_dir": _GCS + name}, len(package)


def _added(job: bytes, wheels: bytes) -> bytes:
    """Return the job's zip with the wheels at its top, where Ray's installers look."""
    whole = io.BytesIO(job)
    with zipfile.ZipFile(whole, "a") as bundle, zipfile.ZipFile(io.BytesIO(wheels)) as source:
        there = {entry.filename: entry.CRC for entry in bundle.infolist()}
        for entry in source.infolist():
            # Of two entries of one name the last one counts.
            if there.get(entry.filename) != entry.CRC:
                bundle.writestr(entry, source.read(entry))
    return whole.getvalue()


def packages(*environments: Mapping[str, Any] | None) -> list[str]:
    """Return the URIs of the packages in the GCS that runtime environments name."""
    named: dict[str, None] = {}
    for each in environments:
        for uri in [(each or {}).get("working_dir", ""), *((each or {}).get("py_modules") or ())]:
            if uri.startswith(_GCS):
                named[uri] = None
    return list(named)


class OwnPackage:
    """The job's files for what one attempt starts through Ray, under a name that no other attempt
    has.

    Ray unpacks a package once per node, and all workers that name it share the directory, and write
    to it.
    """

    def __init__(self, declared: Mapping[str, Any], attempt: str, store: Store) -> None:
        """Name the package of the runtime environment `declared` for an attempt."""
        self._shared = declared["working_dir"].removeprefix(_GCS)
        self._name = (
            f"_ray_pkg_{hashlib.sha256(f'{self._shared} {attempt}'.encode()).hexdigest()[:40]}.zip"
        )
        self._store = store
        self._pins: Pins | None = None
        self.environment = {**declared, "working_dir": _GCS + self._name}

    def keep(self) -> None:
        """Have it in the GCS, however many drivers of the attempt begin and end; to be called again
        and again.

        Raises LookupError if the declared package is gone.
        """
        if self._pins is None:
            content = _content(self._shared, self._store)
            if content is None:
                raise LookupError(f"the uploaded job {self._shared} is no longer on the cluster")
            self._store.put(self._name, content)
            self._pins = Pins([_GCS + self._name], self._store.pin)
        self._pins.look()

    def close(self) -> None:
        if self._pins is not None:
            with contextlib.suppress(Exception):  # a head that is gone has no packages
                self._store.delete(self._name)


@functools.lru_cache(maxsize=1)
def _content(name: str, store: Store) -> bytes | None:
    return store.get(name)


class Pins:
    """Keeps packages in the GCS while somebody looks, whatever jobs of Ray's begin and end
    meanwhile.
    """

    def __init__(
        self,
        uris: Iterable[str],
        pin: Callable[[str, int], object],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Pin at once; `pin` gets a URI and for how many seconds."""
        self._uris = tuple(uris)
        self._pin = pin
        self._clock = clock
        self._due = clock()
        self.look()

    def look(self) -> None:
        if self._clock() < self._due:
            return
        self._due = self._clock() + _EVERY
        for uri in self._uris:
            self._pin(uri, PINNED)
