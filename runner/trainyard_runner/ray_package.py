"""The job's files as packages in Ray's GCS, for commands' Ray tasks and actors.

Ray removes an unpinned package from its GCS once no driver uses it.
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
# Bytes. Larger packages are not copied for each attempt: the GCS holds all copies in memory.
OWN_LIMIT = 4 * 1024 * 1024


class Store(NamedTuple):
    """Access to the packages in Ray's GCS.

    The functions take a package's name; `pin` takes its URI and the seconds to
    keep it.
    """

    get: Callable[[str], bytes | None]
    put: Callable[[str, bytes], object]
    delete: Callable[[str], object]
    pin: Callable[[str, int], object]


@functools.cache
def store() -> Store:
    """Return the store of the connected cluster."""
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
    """Return the runtime_env of commands' own Ray tasks, and a size.

    The size is that of the environment's package, in bytes.

    `declared`: the runtime_env of the commands' workers. Its working directory
    has only the job's wheels, or is missing. The returned working directory
    also has the job's files. `parts`: the uploaded parts of the job's zip, by
    name. Puts a new package into the GCS, unless a single part can be used
    unchanged. Raises LookupError if the GCS no longer has the wheels.
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
    """Add the wheels at the top of the job's zip, for Ray's installers."""
    whole = io.BytesIO(job)
    with zipfile.ZipFile(whole, "a") as bundle, zipfile.ZipFile(io.BytesIO(wheels)) as source:
        there = {entry.filename: entry.CRC for entry in bundle.infolist()}
        for entry in source.infolist():
            # Wheels replace files of the job: the later entry of the same name counts.
            if there.get(entry.filename) != entry.CRC:
                bundle.writestr(entry, source.read(entry))
    return whole.getvalue()


def packages(*environments: Mapping[str, Any] | None) -> list[str]:
    """Return the URIs of GCS packages in runtime environments, each once."""
    named: dict[str, None] = {}
    for each in environments:
        declared = each or {}
        modules = declared.get("py_modules") or ()
        for uri in [declared.get("working_dir", ""), *modules]:
            if uri.startswith(_GCS):
                named[uri] = None
    return list(named)


class OwnPackage:
    """One attempt's copy of the job's package, under another name.

    Ray unpacks a package once per node: attempts that share it would see each
    other's changes.
    """

    def __init__(self, declared: Mapping[str, Any], attempt: str, store: Store) -> None:
        """Name the copy; the first `keep` makes it.

        `environment` is `declared` with the copy as working_dir.
        """
        self._shared = declared["working_dir"].removeprefix(_GCS)
        digest = hashlib.sha256(f"{self._shared} {attempt}".encode()).hexdigest()
        self._name = f"_ray_pkg_{digest[:40]}.zip"
        self._store = store
        self._pins: Pins | None = None
        self.environment = {**declared, "working_dir": _GCS + self._name}

    def keep(self) -> None:
        """Make the copy at the first call; later, renew its pin when due.

        Call this more often than every PINNED seconds: otherwise Ray removes
        the copy when a driver of the attempt ends. Raises LookupError if the
        job's package is gone.
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
    """Keeps even unused packages in the GCS, as long as `look` is called."""

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
        """Renew the pins if _EVERY seconds have passed."""
        if self._clock() < self._due:
            return
        self._due = self._clock() + _EVERY
        for uri in self._uris:
            self._pin(uri, PINNED)
