"""Checks of what is in an image: what image.yaml names, how much, and what must not be in it."""

from __future__ import annotations

import re
import shlex

from trainyard.images.lint import secrets
from trainyard.images.lint.probe import run_question
from trainyard.images.lint.ray_checks import commands_succeed
from trainyard.images.lint.report import Finding, failed, ok
from trainyard.images.lint.seen import Seen
from trainyard.spec.units import format_size

# What a registry and the disks of nodes are expected to bear where image.yaml does not say.
MAX_SIZE = 40 * 1024**3
_NAMED = 3
_BUILD_WORDS = re.compile(r"^/bin/sh -c (?:#\(nop\)\s*)?|\s*# buildkit$")


def size(seen: Seen) -> Finding:
    """Look whether the image is larger than it should be."""
    limit = seen.lint.max_size or MAX_SIZE
    if seen.image.size <= limit:
        return ok("size", f"{_rounded(seen.image.size)} of at most {_rounded(limit)}")
    detail = f"takes {_rounded(seen.image.size)}, and at most {_rounded(limit)} are allowed"
    largest = max(seen.history, key=lambda layer: layer.size, default=None)
    if largest is None:
        return failed("size", detail, "Remove what is not needed in the RUN that made it.")
    made_by = _made_by(largest.created_by)
    return failed("size", detail, f"Its largest layer takes {_rounded(largest.size)}: {made_by}")


def must_have(seen: Seen) -> Finding | None:
    """Look for files and directories."""
    missing = [path for path in seen.lint.must_have if seen.probed.answer(f"path:{path}") is None]
    return _all_there("files", list(seen.lint.must_have), missing, "is not in the image")


def programs(seen: Seen) -> Finding | None:
    """Look for programs; wget has a check of its own."""
    asked = [name for name in seen.lint.programs if name != "wget"]
    missing = [name for name in asked if seen.probed.answer(f"program:{name}") is None]
    return _all_there("programs", asked, missing, "is not on PATH")


def search_paths(seen: Seen) -> Finding | None:
    """Look for directories in PATH and LD_LIBRARY_PATH, such as those that NVIDIA's runtime fills."""
    asked = {"PATH": seen.lint.path_contains, "LD_LIBRARY_PATH": seen.lint.ld_library_path_contains}
    wanted = [(name, path) for name, entries in asked.items() for path in entries]
    missing = [(name, path) for name, path in wanted if path not in seen.image.env.get(name, "").split(":")]
    if not wanted:
        return None
    if not missing:
        return ok("search-paths", ", ".join(f"{path} in {name}" for name, path in wanted))
    name, path = missing[0]
    detail = "; ".join(f"{name} does not list {path}" for name, path in missing)
    return failed("search-paths", detail, f"Add it in the Dockerfile: ENV {name}={path}:${name}")


def environ(seen: Seen) -> Finding | None:
    """Look for environment variables."""
    wrong = [
        f"{name} is {shlex.quote(seen.image.env[name]) if name in seen.image.env else 'not set'}, not {value!r}"
        for name, value in seen.lint.environ.items()
        if seen.image.env.get(name) != value
    ]
    if not seen.lint.environ:
        return None
    if wrong:
        return failed("environ", "; ".join(wrong), "Set it in the Dockerfile: ENV NAME=VALUE")
    return ok("environ", ", ".join(seen.lint.environ))


def runs(seen: Seen) -> Finding | None:
    """Look whether the commands of image.yaml succeed."""
    if not seen.lint.runs:
        return None
    return commands_succeed(seen, "runs", {run_question(one): f"`{shlex.join(one)}`" for one in seen.lint.runs})


def history(seen: Seen) -> Finding:
    """Look for secrets in environment variables, labels, and the commands that made the layers."""
    told = {one: f"the variable {one}" for one in secrets.secrets_in_environment(seen.image.env)}
    told |= {one: f"the label {one}" for one in secrets.secrets_in_environment(seen.image.labels)}
    for number, layer in enumerate(seen.history, start=1):
        for one in secrets.secrets_in_command(layer.created_by):
            # What a variable or label still says stands in the history too, where it was set.
            told.setdefault(one, f"{one} in step {number} of its history")
    found = list(told.values())
    if found:
        return failed("history", f"shows secrets: {_some(found)}", _HIDE_HINT)
    return ok("history", f"no secret in {len(seen.history)} steps")


_HIDE_HINT = "Change the secret, then pass it to the build as one: RUN --mount=type=secret,id=..."


def _all_there(check: str, asked: list[str], missing: list[str], how: str) -> Finding | None:
    if not asked:
        return None
    if missing:
        detail = "; ".join(f"{one} {how}" for one in missing)
        return failed(check, detail, "image.yaml says that the image needs it: add it in the Dockerfile.")
    return ok(check, ", ".join(asked))


def _some(found: list[str]) -> str:
    more = len(found) - _NAMED
    return ", ".join(found[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _rounded(size: int) -> str:
    """Return a size as people say it; format_size keeps every byte."""
    for unit, factor in (("GiB", 1024**3), ("MiB", 1024**2)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}".replace(".0 ", " ")
    return format_size(size)


def _made_by(command: str) -> str:
    return " ".join(_BUILD_WORDS.sub("", command).split())[:100] or "its base"
