"""Ray's other forms of a runtime_env: files, and mappings with options.

https://docs.ray.io/en/latest/ray-core/handling-dependencies.html, API reference
of runtime_env.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from trainyard.errors import Problem

# Options of pip and uv, by Ray's names.
OPTIONS = {
    "pip": ("pip_check", "pip_version", "pip_install_options"),
    "uv": ("uv_check", "uv_version", "uv_pip_install_options"),
}
# Lines of a requirements file that name another file or directory, which no node has.
_NAMES_A_FILE = re.compile(r"(?:-r|-c|-e|--requirement|--constraint|--editable)[ =]|\.{0,2}/")
_HERE = (".", "./")


def as_lists(given: Mapping[str, Any], directory: Path) -> tuple[dict[str, Any], list[Problem]]:
    """Replace Ray's other forms of a runtime_env by lists.

    Also returns problems with files. A file, relative to `directory`, is
    replaced by its content. Options of pip and uv move to `install_options`.
    """
    env = dict(given)
    problems = list[Problem]()
    for key, options in OPTIONS.items():
        if isinstance(env.get(key), Mapping):
            _take_options(env, key, options)
        if isinstance(env.get(key), str):
            env[key] = _requirements(key, directory, env[key], problems)
    if str(env.get("conda")).endswith((".yml", ".yaml")):
        env["conda"] = _environment(directory, str(env["conda"]), problems)
    if env.get("working_dir") in _HERE:
        # The job's directory is sent anyway.
        del env["working_dir"]
    return env, problems


def _take_options(env: dict[str, Any], key: str, options: tuple[str, ...]) -> None:
    """Split `{packages: [...], ...}` into packages and options.

    A mapping with other keys stays, and validation rejects it.
    """
    given = dict(env[key])
    if not given.keys() <= {"packages", *options}:
        return
    env[key] = given.pop("packages", [])

    options_of_file = env.get("install_options") or {}
    if given and isinstance(options_of_file, Mapping):
        env["install_options"] = {**options_of_file, **given}


def _requirements(key: str, directory: Path, name: str, problems: list[Problem]) -> list[str]:
    where = f"runtime_env.{key}"
    text = _text(
        directory / name, where, problems, hint=f"; a package is an entry of a list: [{name}]"
    )
    lines = [line.strip() for line in text.splitlines()]
    kept = [line for line in lines if line and not line.startswith("#")]
    for line in kept:
        if _NAMES_A_FILE.match(line):
            message = f"{name} names a file of this machine, which no node has: {line}"
            problems.append(Problem(where, message))
    return kept


def _environment(directory: Path, name: str, problems: list[Problem]) -> Any:
    text = _text(directory / name, "runtime_env.conda", problems)
    try:
        return yaml.safe_load(text) or None
    except yaml.YAMLError:
        problems.append(Problem("runtime_env.conda", f"{name} is no YAML"))
        return None


def _text(file: Path, where: str, problems: list[Problem], *, hint: str = "") -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        problems.append(Problem(where, f"no such file: {file}{hint}"))
    except (OSError, UnicodeDecodeError) as error:
        problems.append(Problem(where, f"{file} cannot be read: {error}"))
    return ""
