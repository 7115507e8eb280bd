"""The job's files as Ray hands them to its workers: for a command's own Ray tasks and actors.

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
from typing import Any, NamedTuple

# Long against the runner's longest pause; a package outlives its run by so much.
PINNED = 600
_EVERY = 150.0
_GCS = "gcs://"
# Bytes; the head's GCS holds such a package in its memory for each attempt that runs.
OWN_LIMIT = 4 * 1024 * 1024


class Store(NamedTuple):
    """The packages that Ray's GCS holds, by name; `pin` gets a URI and the seconds to keep it."""

    get: Callable[[str], bytes | None]
    put: Callable[[str, bytes], object]
    delete: Callable[[str], object]
    pin: Callable[[str, int], object]


@functools.cache
def store() -> Store:
    """Return the packages of the cluster that this process is connected to."""
    from ray.experimental import internal_kv

    return Store(
        get=lambda name: internal_kv._internal_kv_get(f"{_GCS}{name}".encode()),
        put=lambda name, content: internal_kv._internal_kv_put(f"{_GCS}{name}".encode(), content),
        delete=lambda name: internal_kv._internal_kv_del(f"{_GCS}{name}".encode()),
        pin=lambda uri, seconds: internal_kv._pin_runtime_env_uri(uri, expiration_s=seconds),
    )


def environment(
    declared: Mapping[str, Any] | None,
    parts: Mapping[str, bytes],
    *,
    get: Callable[[str], bytes | None],
    put: Callable[[str, bytes], object],
) -> tuple[dict[str, Any], int]:
    """Return the runtime environment of the commands' Ray tasks, and the size of its package.

    `declared` is that of the tasks' own workers, whose working directory has the job's wheels, if
    there are any; the new one has all the job's files, too. `parts` is the job's zip as it was
    sent, by the names of its parts. `get` and `put` are those of a Store. Raises LookupError if the
    wheels are gone.
    """
    found = dict(declared or {})
    wheels = found.get("working_dir", "").removeprefix(_GCS)
    if wheels:
        content = get(wheels)
        if content is None:
            raise LookupError(f"the uploaded wheels {wheels} are no longer on the cluster")
        package = _added(b"".join(parts.values()), content)
    elif len(parts) == 1:
        # A zip that was sent as one part is already a package that Ray takes.
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
            # The last one of two entries with the same name counts.
            if there.get(entry.filename) != entry.CRC:
                bundle.writestr(entry, source.read(entry))
    return whole.getvalue()


def packages(*environments: Mapping[str, Any] | None) -> list[str]:
    """Return the URIs of the packages in the GCS that runtime environments name."""
    named: dict[str, None] = {}
    for each in environments:
        declared = each or {}
        modules = declared.get("py_modules") or ()
        for uri in [declared.get("working_dir", ""), *modules]:
            if uri.startswith(_GCS):
                named[uri] = None
    return list(named)


class OwnPackage:
    """The job's files for one attempt's Ray tasks, under a name that no other attempt has.

    Ray unpacks a package once per node; all workers that name it share the directory, and write to
    it.
    """

    def __init__(self, declared: Mapping[str, Any], attempt: str, store: Store) -> None:
        """Name the package of the runtime environment `declared` for an attempt."""
        self._shared = declared["working_dir"].removeprefix(_GCS)
        digest = hashlib.sha256(f"{self._shared} {attempt}".encode()).hexdigest()
        self._name = f"_ray_pkg_{digest[:40]}.zip"
        self._store = store
        self._pins: Pins | None = None
        self.environment = {**declared, "working_dir": _GCS + self._name}

    def keep(self) -> None:
        """Keep it in the GCS, however many drivers of the attempt begin and end; to be called often.

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
    """Keeps packages in the GCS while `look` is called, whatever Ray jobs begin and end."""

    def __init__(
        self,
        uris: Iterable[str],
        pin: Callable[[str, int], object],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Pin at once; `pin` gets a URI and the seconds to keep it."""
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
