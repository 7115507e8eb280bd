"""The job's files as packages in Ray's GCS, for a command's own Ray tasks and actors.

Ray removes a package from its GCS once no driver uses it, unless the package is pinned.
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

# Seconds of a pin, longer than any pause of the runner. A package outlives its run by this time.
PINNED = 600
_EVERY = 150.0
_GCS = "gcs://"
# Bytes. Only packages up to this size are copied for each running attempt, because the head's GCS
# holds all copies in memory.
OWN_LIMIT = 4 * 1024 * 1024


class Store(NamedTuple):
    """The functions to read, write, delete and pin packages in Ray's GCS.

    All take the package's name, except `pin`, which takes its URI and the seconds to keep it.
    """

    get: Callable[[str], bytes | None]
    put: Callable[[str, bytes], object]
    delete: Callable[[str], object]
    pin: Callable[[str, int], object]


@functools.cache
def store() -> Store:
    """Return the Store of the cluster that this process is connected to."""
    from ray.experimental import internal_kv

    return Store(
        get=lambda name: internal_kv._internal_kv_get(f"{_GCS}{name}".encode()),
        put=lambda name, content: internal_kv._internal_kv_put(f"{_GCS}{name}".encode(), content),
        delete=lambda name: internal_kv._internal_kv_del(f"{_GCS}{name}".encode()),
        pin=lambda uri, seconds: internal_kv._pin_runtime_env_uri(uri, expiration_s=seconds),
    )


def environment(
    declared: Mapping[str, Any] | None, parts: Mapping[str, bytes], store: Store
) -> tuple[dict[str, Any], int]:
    """Return the runtime_env of commands' own Ray tasks, and its package's size in bytes.

    `declared`: the runtime environment of the workers that run the commands. Its working directory
    has only the job's wheels, or is missing. The returned environment's working directory also has
    all the job's files. `parts`: the uploaded parts of the job's zip, by name. Unless a single part
    can be used unchanged, a new package is put into the GCS. Raises LookupError if the GCS no
    longer has the wheels.
    """
    found = dict(declared or {})
    wheels = found.get("working_dir", "").removeprefix(_GCS)
    if wheels:
        content = store.get(wheels)
        if content is None:
            raise LookupError(f"the uploaded wheels {wheels} are no longer on the cluster")
        package = _added(b"".join(parts.values()), content)
    elif len(parts) == 1:
        # A zip that was uploaded in one part is already a package in the GCS.
        name, package = next(iter(parts.items()))
        return {**found, "working_dir": _GCS + name}, len(package)
    else:
        package = b"".join(parts.values())

    name = f"_ray_pkg_{hashlib.sha256(package).hexdigest()[:40]}.zip"
    store.put(name, package)
    return {**found, "working_dir": _GCS + name}, len(package)


def _added(job: bytes, wheels: bytes) -> bytes:
    """Return the job's zip with the wheels at its top, where Ray's installers look."""
    whole = io.BytesIO(job)
    with zipfile.ZipFile(whole, "a") as bundle, zipfile.ZipFile(io.BytesIO(wheels)) as source:
        there = {entry.filename: entry.CRC for entry in bundle.infolist()}
        for entry in source.infolist():
            # Wheels replace files of the job: the later entry of the same name counts.
            if there.get(entry.filename) != entry.CRC:
                bundle.writestr(entry, source.read(entry))
    return whole.getvalue()


def packages(*environments: Mapping[str, Any] | None) -> list[str]:
    """Return the URIs of the GCS's packages that runtime environments use, each once."""
    named: dict[str, None] = {}
    for each in environments:
        declared = each or {}
        modules = declared.get("py_modules") or ()
        for uri in [declared.get("working_dir", ""), *modules]:
            if uri.startswith(_GCS):
                named[uri] = None
    return list(named)


class OwnPackage:
    """A separately named copy of the job's package for one attempt's Ray tasks.

    Ray unpacks a package once per node. Workers with the same package share its directory, and
    would see each other's changes.
    """

    def __init__(self, declared: Mapping[str, Any], attempt: str, store: Store) -> None:
        """Choose the copy's name; `environment` becomes `declared` with the copy as working_dir.

        The first `keep` makes the copy.
        """
        self._shared = declared["working_dir"].removeprefix(_GCS)
        digest = hashlib.sha256(f"{self._shared} {attempt}".encode()).hexdigest()
        self._name = f"_ray_pkg_{digest[:40]}.zip"
        self._store = store
        self._pins: Pins | None = None
        self.environment = {**declared, "working_dir": _GCS + self._name}

    def keep(self) -> None:
        """Put the copy into the GCS at the first call, and renew its pin when that is due.

        Call this more often than every PINNED seconds: otherwise Ray removes the copy when a driver
        of the attempt ends. Raises LookupError if the job's package is gone.
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
    """Keeps packages in the GCS, even if no driver uses them, as long as `look` is called."""

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
        """Renew the pins every _EVERY seconds; does nothing in between."""
        if self._clock() < self._due:
            return
        self._due = self._clock() + _EVERY
        for uri in self._uris:
            self._pin(uri, PINNED)
