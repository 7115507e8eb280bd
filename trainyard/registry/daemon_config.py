"""Docker's daemon.json with one more registry that may be spoken to without TLS; every other key stays as it is."""

from __future__ import annotations

import json
import re

from trainyard.errors import PrerequisiteError

KEY = "insecure-registries"


def has(text: str, address: str, *, where: str) -> bool:
    """Say whether the settings name the registry. Raises PrerequisiteError for settings that Docker cannot read."""
    return address in _listed(_read(text, where=where), where=where)


def merged(text: str, address: str, *, where: str) -> str:
    """Return the settings with the registry in them: keys, their order and the indentation stay.

    Raises PrerequisiteError for settings that Docker cannot read.
    """
    settings = _read(text, where=where)
    listed = _listed(settings, where=where)
    if address in listed:
        return text
    settings[KEY] = [*listed, address]
    return json.dumps(settings, indent=_indentation(text), ensure_ascii=False) + "\n"


def _read(text: str, *, where: str) -> dict[str, object]:
    # dockerd takes an empty file for no settings.
    if not text.strip():
        return {}
    try:
        settings = json.loads(text, object_pairs_hook=_without_repetition)
    except json.JSONDecodeError as error:
        raise _unreadable(f"is not JSON: {error.msg}", f"{where}:{error.lineno}:{error.colno}") from error
    except _RepeatedKeyError as error:
        raise _unreadable(f"has the key {error} twice", where) from error
    if not isinstance(settings, dict):
        raise _unreadable("is not a JSON object", where)
    return settings


def _listed(settings: dict[str, object], *, where: str) -> list[str]:
    listed = settings.get(KEY) or []
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        raise _unreadable(f"has {KEY} that are not a list of texts", where)
    return [str(one) for one in listed]


def _unreadable(what: str, where: str) -> PrerequisiteError:
    return PrerequisiteError(
        f"Docker's settings file {what}",
        where=where,
        hint="Docker would not start with it. Repair it, then repeat this command; nothing was changed.",
    )


class _RepeatedKeyError(ValueError):
    """Docker takes the last of two equal keys; to write either back would drop the other."""


def _without_repetition(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in pairs:
        if key in found:
            raise _RepeatedKeyError(repr(key))
        found[key] = value
    return found


def _indentation(text: str) -> str | int:
    """Return how the file is indented; two spaces where that cannot be seen."""
    found = re.search(r"^\{\s*\n([ \t]+)\S", text)
    return found[1] if found else 2
