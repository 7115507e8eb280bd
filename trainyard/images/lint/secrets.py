"""What looks like a secret in a variable, a label, or a command that made a layer: all that `docker history` shows.

Named are the place and the kind, never the secret. Files in the layers are not searched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from trainyard.spec.fields import SECRET_NAME

# What is a secret wherever it stands; tokens have the prefixes that their issuers chose.
_KINDS = (
    ("a login and password in a URL", r"https?://[^\s/:@'\"$<>{}]+:[^\s/:@'\"$<>{}]+@"),
    ("a bearer token", r"(?i)\bbearer\s+[A-Za-z0-9._~+/-]{16,}"),
    ("a private key", r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----"),
    ("a key of AWS", r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b(?<!EXAMPLE)"),
    ("a token of GitHub", r"\b(?:gh[pousr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{40,})"),
    ("a token of GitLab", r"\bglpat-[A-Za-z0-9_-]{20}"),
    ("a token of Hugging Face", r"\bhf_[A-Za-z0-9]{34}\b"),
    ("a key of NVIDIA", r"\bnvapi-[A-Za-z0-9_-]{50,}"),
    ("a token of PyPI", r"\bpypi-AgE[A-Za-z0-9_-]{50,}"),
    ("a token of Docker Hub", r"\bdckr_[po]at_[A-Za-z0-9_-]{20,}"),
    ("a token of npm", r"\bnpm_[A-Za-z0-9]{36}\b"),
    ("a token of Slack", r"\bxox[abprs]-[0-9A-Za-z-]{20,}"),
    ("a key of Google", r"\bAIza[0-9A-Za-z_-]{35}\b"),
    ("a key of Anthropic", r"\bsk-ant-[A-Za-z0-9_-]{40,}"),
)
_SETTING = re.compile(r"""(?<![\w$])([A-Za-z_][A-Za-z0-9_-]*)=("[^"]*"|'[^']*'|[^\s"']+)""")
_NO_SECRET = re.compile(r"(?i)|true|false|yes|no|none|null|\d{1,8}|[*x]+|\(hidden\)|[/$~<{].*|https?://[^@]*|file:.*")


def secrets_in_environment(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield "NAME" or "NAME (kind)" for each variable, or label, that holds a secret."""
    for name, value in environ.items():
        if SECRET_NAME.search(name) and _is_literal(value):
            yield name
        elif kind := _kind_in_text(value):
            yield f"{name} ({kind})"


def secrets_in_command(command: str) -> Iterator[str]:
    """Yield what secrets stand in a command that made a layer, build arguments too."""
    for name, value in _SETTING.findall(command):
        if SECRET_NAME.search(name.replace("-", "_")) and _is_literal(value.strip("\"'")):
            yield name.lstrip("-")
    if kind := _kind_in_text(command):
        yield kind


def _is_literal(value: str) -> bool:
    """Return whether a value is the secret itself: not a path, a variable, a switch or a placeholder."""
    return len(value) >= 5 and not _NO_SECRET.fullmatch(value)


def _kind_in_text(text: str) -> str | None:
    return next((kind for kind, pattern in _KINDS if re.search(pattern, text)), None)
