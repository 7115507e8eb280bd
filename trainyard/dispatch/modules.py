"""The modules that a job sends for its tasks to import: Ray's `py_modules`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from trainyard.dispatch.package import Listing, Package, listing, pack, sent_file
from trainyard.errors import Problem, RequestError
from trainyard.results import formats
from trainyard.seams.ray_api import PART_LIMIT

_REMOTE = "://"


def problems(names: Sequence[str], directory: Path) -> Iterator[Problem]:
    """Yield a problem for each local name without a module."""
    for index, name in enumerate(names):
        path = directory / name
        where = f"runtime_env.py_modules.{index}"
        if _REMOTE in name:
            continue
        if path.suffix == ".whl":
            yield Problem(where, f"{name} is a wheel: name it under `wheels`")
        elif not path.is_dir() and not (path.suffix == ".py" and path.is_file()):
            yield Problem(where, f"no such directory or .py file: {name}")


def packed(names: Sequence[str], directory: Path) -> tuple[str | Package, ...]:
    """Pack each local module; keep remote addresses, which Ray itself fetches.

    Inside the package, a directory has the module's name, as Ray expects.
    Raises RequestError for a module above PART_LIMIT bytes.
    """
    modules: list[str | Package] = []
    for name in names:
        if _REMOTE in name:
            modules.append(name)
        else:
            modules.append(_packed(name, (directory / name).resolve()))
    return tuple(modules)


def _packed(name: str, path: Path) -> Package:
    if path.is_file():
        listed = Listing(path.parent, (sent_file(path, path.name),), ())
        prefix = ""
    else:
        listed = listing(path)
        prefix = f"{path.name}/"
    if listed.size >= PART_LIMIT:
        sizes = f"{name} has {formats.size(listed.size)}, at most {formats.size(PART_LIMIT)}"
        raise RequestError(
            "a module is too big for Ray", problems=(Problem("runtime_env.py_modules", sizes),)
        )
    return pack(listed, prefix=prefix)
