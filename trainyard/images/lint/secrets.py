"""What looks like a secret in a variable, a label, or a command that made a layer: all that `docker history` shows.

Named are the place and the kind, never the secret. Files in the layers are not searched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from trainyard.spec.secrets import SECRET_NAME, is_literal, kind_in

_SETTING = re.compile(r"""(?<![\w$])([A-Za-z_][A-Za-z0-9_-]*)=("[^"]*"|'[^']*'|[^\s"']+)""")


def secrets_in_environment(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield "NAME" or "NAME (kind)" for each variable, or label, that holds a secret."""
    for name, value in environ.items():
        if SECRET_NAME.search(name) and is_literal(value):
            yield name
        elif kind := kind_in(value):
            yield f"{name} ({kind})"


def secrets_in_command(command: str) -> Iterator[str]:
    """Yield what secrets stand in a command that made a layer, build arguments too."""
    for name, value in _SETTING.findall(command):
        if SECRET_NAME.search(name.replace("-", "_")) and is_literal(value.strip("\"'")):
            yield name.lstrip("-")
    if kind := kind_in(command):
        yield kind
