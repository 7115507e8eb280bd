"""A sweep's search space: its configurations, and commands that try them."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

Params = dict[str, Any]
Space = Mapping[str, Mapping[str, Any]]

# `{{` and `}}` are escaped braces.
MARK = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_-]*)\}|[{}]")


def fill(text: str, values: Mapping[str, str]) -> str:
    """Replace each placeholder in the text, and `{{` and `}}` by single braces.

    Raises KeyError for a placeholder without a value, which checked job files
    do not have.
    """
    return MARK.sub(lambda mark: values[mark[1]] if mark[1] else mark[0][0], text)


def text_of(value: str | bool | int | float) -> str:
    """Return a value as text for a command: true and false as in YAML."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def tidy(params: Params) -> Params:
    """Round a configuration's floats to 15 digits: 0.3 for 0.30000000000000004.

    Multiples of a step, such as 3 * 0.1, have such errors.
    """
    tidied: Params = {}
    for name, value in params.items():
        if isinstance(value, float):
            value = float(f"{value:.15g}")
        tidied[name] = value
    return tidied


def filled(template: Mapping[str, Any], values: Params, space: Collection[str]) -> dict[str, Any]:
    """Return a sweep's template as a task, with all placeholders replaced.

    `values`: the configuration's parameters and `repeat`. A word of the
    command, or a variable, is left out if it names a parameter without a value.
    """
    texts = {name: text_of(value) for name, value in values.items()}
    lacking = set(space) - set(texts)

    def has_all(text: str) -> bool:
        return not any(mark[1] in lacking for mark in MARK.finditer(text))

    command = [fill(word, texts) for word in template["command"] if has_all(word)]
    env = {name: fill(text, texts) for name, text in template["env"].items() if has_all(text)}
    return {**template, "command": command, "env": env}


def suggest(trial: Any, space: Space) -> Params:
    """Ask an Optuna trial for a value of each parameter whose `when` holds."""
    params: Params = {}
    for name, parameter in space.items():
        if not _is_used(parameter, params):
            continue

        kind = parameter["kind"]
        of = parameter["of"]
        step = parameter["step"]
        if kind in ("randint", "lograndint"):
            is_log = kind == "lograndint"
            params[name] = trial.suggest_int(name, *of, step=int(step or 1), log=is_log)
        elif kind in ("uniform", "loguniform"):
            params[name] = trial.suggest_float(name, *of, step=step, log=kind == "loguniform")
        else:
            params[name] = trial.suggest_categorical(name, of)
    return tidy(params)


def grid(space: Space) -> Iterator[Params]:
    """Yield all configurations of a finite space, without unused parameters.

    A parameter whose `when` does not hold is unused. The same configuration is
    yielded again for each value of a parameter that it does not use.
    """
    for values in itertools.product(*(parameter["values"] for parameter in space.values())):
        params: Params = {}
        for (name, parameter), value in zip(space.items(), values, strict=True):
            if _is_used(parameter, params):
                params[name] = value
        yield params


def is_finite(space: Space) -> bool:
    return all(parameter["values"] for parameter in space.values())


def shuffled(space: Space, seed: int) -> Space:
    """Put each parameter's values into random order.

    The grid then does not begin with the lowest values of all parameters.
    """
    chance = random.Random(seed)  # noqa: S311 - the order in which configurations are tried
    mixed = {}
    for name, parameter in space.items():
        values = parameter["values"]
        mixed[name] = {**parameter, "values": chance.sample(values, len(values))}
    return mixed


def key_of(params: Params) -> tuple[tuple[str, str], ...]:
    """Return a key that equal configurations share; 1 and true differ."""
    return tuple(sorted((name, repr(value)) for name, value in params.items()))


def _is_used(parameter: Mapping[str, Any], params: Params) -> bool:
    when = parameter["when"].items()
    return all(name in params and params[name] in values for name, values in when)


def packages(search: str) -> tuple[str, ...]:
    """Return the packages that the head's Python needs for a search."""
    if search == "cmaes":
        return ("optuna", "cmaes")
    return ("optuna",)
