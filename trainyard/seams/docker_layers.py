"""The files of an image layer by layer: also those that a later layer removed.

`docker save` writes the whole image to the engine's disk before its first byte comes (seen: 6 s for 0.7 GB). Where the
engine says in which directory it keeps each layer, a container that never starts has the wanted ones mounted, and their
content comes as archives: new layers only, and nothing is written. Engines that keep layers elsewhere get a save.
"""

from __future__ import annotations

import secrets
import tarfile
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import IO, Any, cast
from urllib.parse import quote

import requests
from docker.errors import APIError

from trainyard.errors import OutsideError
from trainyard.seams.docker_engine import Engine, refusals
from trainyard.seams.docker_once import LABEL
from trainyard.seams.saved_image import ByteStream, UnreadableLayerError, saved_layers

CHUNK = 1 << 20
CONNECT_SECONDS = 10.0
# Until the engine has written the whole image: a slow disk takes half a minute for each gigabyte.
SAVE_SECONDS = 1800.0
MOUNTED = "/trainyard-layers"


@dataclass(frozen=True)
class Search:
    """Which files to read (by path and size), and what to make of one: None, or what was found in it."""

    wanted: Callable[[str, int], bool]
    look: Callable[[str, bytes], str | None]


Found = tuple[tuple[str, str], ...]


def search_layers(
    engine: Engine,
    image_id: str,
    search: Search,
    *,
    known: Collection[str] = (),
    on_progress: Callable[[str], None] | None = None,
    from_save: bool = False,
) -> Mapping[str, Found]:
    """Return, by diff id, (path, what was found) of every layer that is not `known`. Raises OutsideError."""
    with refusals(f"look at the image {image_id}"):
        image = engine.api.inspect_image(image_id)  # type: ignore[no-untyped-call]
    layers = image["RootFS"].get("Layers") or []
    if set(layers) <= set(known):
        return {}
    directories = [] if from_save else _directories(engine, image)
    if len(directories) == len(layers):
        by_layer = dict(zip(layers, directories, strict=True))
        return _search_mounted(
            engine, image_id, {one: by_layer[one] for one in by_layer if one not in known}, search, on_progress
        )
    return _search_saved(engine, image_id, layers, search, on_progress)


def _directories(engine: Engine, image: Mapping[str, Any]) -> list[str]:
    """Return where the engine keeps each layer, the base's first; nothing if it does not say, or cannot mount it."""
    driver = image.get("GraphDriver") or {}
    places = driver.get("Data") or {}
    if driver.get("Name") != "overlay2" or "UpperDir" not in places:
        return []
    # Docker Desktop takes the paths of mounts for the desktop's, not for those of its virtual machine.
    if "Docker Desktop" in str(engine.info().get("OperatingSystem")):
        return []
    lower = str(places.get("LowerDir") or "")
    return [*reversed(lower.split(":") if lower else []), str(places["UpperDir"])]


def _search_mounted(
    engine: Engine,
    image_id: str,
    directories: Mapping[str, str],
    search: Search,
    on_progress: Callable[[str], None] | None,
) -> dict[str, Found]:
    found: dict[str, Found] = {}
    with _container(engine, image_id, list(directories.values())) as name:
        for number, layer in enumerate(directories):
            if on_progress:
                on_progress(f"reading layer {number + 1} of {len(directories)}")
            with refusals(f"read a layer of {image_id}"):
                archive, _ = engine.api.get_archive(name, f"{MOUNTED}/{number}", chunk_size=CHUNK)
                found[layer] = tuple(_search_archive(archive, search))
    return found


@contextmanager
def _container(engine: Engine, image_id: str, directories: list[str]) -> Iterator[str]:
    """Give a container that never starts, with these directories of the engine's host in it."""
    name = f"trainyard-once-{secrets.token_hex(6)}"
    binds: dict[str, Mapping[str, str]] = {
        one: {"bind": f"{MOUNTED}/{number}", "mode": "ro"} for number, one in enumerate(directories)
    }
    try:
        with refusals(f"look at the layers of {image_id}"):
            engine.api.create_container(
                image_id,
                ["never started"],
                name=name,
                labels={LABEL: "true"},
                host_config=engine.api.create_host_config(binds=binds, network_mode="none"),
            )
        yield name
    finally:
        with suppress(APIError, requests.RequestException):
            engine.api.remove_container(name, v=True, force=True)


def _search_archive(archive: Iterator[bytes], search: Search) -> Iterator[tuple[str, str]]:
    """Yield what is found in an archive of /trainyard-layers/N, whose names begin with N/."""
    with tarfile.open(fileobj=cast(IO[bytes], ByteStream(archive)), mode="r|", bufsize=CHUNK) as files:
        yield from _search_files(files, search, below=1)


def _search_files(files: tarfile.TarFile, search: Search, *, below: int = 0) -> Iterator[tuple[str, str]]:
    """Yield (path, what was found) of the wanted files; `below` is how many directories stand before each path."""
    try:
        for member in files:
            path = member.name.removeprefix("./").split("/", below)[-1]
            if member.isreg() and search.wanted(path, member.size):
                content = files.extractfile(member)
                what = search.look(path, content.read() if content else b"")
                if what:
                    yield path, what
    except tarfile.TarError as error:
        raise UnreadableLayerError("a layer cannot be read", where=str(error)) from error


def _search_saved(
    engine: Engine,
    image_id: str,
    layers: list[str],
    search: Search,
    on_progress: Callable[[str], None] | None,
) -> dict[str, Found]:
    if on_progress:
        on_progress("reading the whole image: this engine does not say where its layers are")
    with refusals(f"save {image_id}"), closing(_saved(engine, image_id)) as chunks:
        found = saved_layers(ByteStream(chunks), lambda files: tuple(_search_files(files, search)))
    if len(found) != len(layers):
        raise OutsideError(
            "the layers of the image cannot be told apart", where=f"{len(found)} saved, and {len(layers)} in the image"
        )
    return dict(zip(layers, found, strict=True))


def _saved(engine: Engine, image_id: str) -> Generator[bytes, None, None]:
    """Yield what `docker save` writes; docker-py's own call gives up when the first byte takes a minute."""
    url = f"{engine.api.base_url}/v{engine.api.api_version}/images/{quote(image_id, safe=':')}/get"
    with engine.api.get(url, stream=True, timeout=(CONNECT_SECONDS, SAVE_SECONDS)) as answer:
        if answer.status_code != requests.codes.ok:
            raise OutsideError(f"Docker refused to save {image_id}", where=answer.text.strip()[:500])
        yield from answer.iter_content(CHUNK)
