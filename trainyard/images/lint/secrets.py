"""Find likely secrets in variables, labels and commands (`docker history`).

Results name the place and the kind, never the secret. Files in the layers are
not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from trainyard.spec.secrets import (
    HIDDEN,
    SECRET_NAME,
    is_likely_name,
    is_literal,
    kind_in,
    without_secrets,
)

# Text that Docker and BuildKit add around an instruction.
_NOISE = re.compile(r"^/bin/sh -c #\(nop\)\s+|\s*# buildkit$")
_FLAG = re.compile(
    r"(?i)(-u\s+\S+:|--?[a-z-]*(?:token|passw|secret|key|user)[a-z-]*[ =]+)[^\s;&|]+"
)
LONGEST = 80
_SETTING = re.compile(r"""(?<![\w$])([A-Za-z_][A-Za-z0-9_-]*)=("[^"]*"|'[^']*'|[^\s"']+)""")


def secrets_in_environment(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield "NAME" or "NAME (kind)" for each value that is likely a secret."""
    for name, value in environ.items():
        if SECRET_NAME.search(name) and is_literal(value):
            yield name
        elif kind := kind_in(value):
            yield f"{name} ({kind})"


def secrets_in_command(command: str) -> Iterator[str]:
    """Yield names or kinds of likely secrets in a layer's command."""
    for name, value in _SETTING.findall(command):
        if SECRET_NAME.search(name.replace("-", "_")) and is_literal(value.strip("\"'")):
            yield name.lstrip("-")
    if kind := kind_in(command):
        yield kind


def masked(command: str) -> str:
    """Hide likely secrets in a layer's command, and cut long text."""
    # Everything after the header of a private key is dropped.
    text, private_key, _ = _NOISE.sub("", command).partition("-----BEGIN ")
    text = _SETTING.sub(
        lambda found: f"{found[1]}={HIDDEN}" if is_likely_name(found[1]) else found[0], text
    )
    text = without_secrets(_FLAG.sub(rf"\1{HIDDEN}", text))
    text = " ".join(text.split()) + (HIDDEN if private_key else "")
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]}..."
