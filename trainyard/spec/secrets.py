"""Secrets in files, commands and records, found by key name or form."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

HIDDEN = "(hidden)"
# Names of variables that certainly hold a secret. TOKENIZERS_PARALLELISM (Hugging Face) holds none,
# and must not match.
SECRET_NAME = re.compile(
    r"token(?:s?$|_)|passw|secret|credential|(?:api|access|private|ssh)_?key", re.IGNORECASE
)
# Names of variables that may hold a secret. A record loses little if it hides GPG_KEY, but much if
# it shows WANDB_KEY.
_LIKELY_NAME = re.compile(
    rf"{SECRET_NAME.pattern}|passphrase|webhook|cookie|authorization|pgpass"
    r"|(?:^|_)(?:dsn|pass)$|_(?:key|auth|pwd|pat)$",
    re.IGNORECASE,
)
# Forms of known secrets; tokens have prefixes that their issuers chose.
KINDS = (
    ("a login and password in a URL", r"(?<=://)[^\s/:@'\"$<>{}]*:[^\s/@'\"$<>{}]+(?=@)"),
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
_NO_SECRET = re.compile(
    r"(?i)|true|false|yes|no|none|null|\d{1,8}|[*x]+|\(hidden\)|[/$~<{].*|https?://[^@]*|file:.*"
)
# `--wandb-key` or `--wandb-key=VALUE` among the words of a command.
_FLAG = re.compile(r"--?([A-Za-z][A-Za-z0-9_-]*)(=.*)?", re.DOTALL)
# Each NAME of `NAME=` and `{NAME: ...}` in a value of --set.
_NAMES_IN_OVERRIDE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)[\"']?\s*[=:]")


def is_likely_name(name: str) -> bool:
    return _LIKELY_NAME.search(name.replace("-", "_")) is not None


def is_literal(value: str) -> bool:
    """Say whether a value may be a secret, and not a path or placeholder."""
    return len(value) >= 5 and not _NO_SECRET.fullmatch(value)


def kind_in(text: str) -> str | None:
    for kind, pattern in KINDS:
        if re.search(pattern, text):
            return kind
    return None


def without_secrets(text: str) -> str:
    for _, pattern in KINDS:
        text = re.sub(pattern, HIDDEN, text)
    return text


def hidden(variables: Mapping[str, str]) -> dict[str, str]:
    """Hide secrets.

    A variable with a secret's name is hidden as a whole. In others, only the
    parts that have the form of a secret are hidden.
    """
    shown = {}
    for name, value in variables.items():
        if is_likely_name(name):
            shown[name] = HIDDEN
        else:
            shown[name] = without_secrets(value)
    return shown


def command_without_secrets(words: Iterable[str]) -> list[str]:
    """Hide a command's secrets, known by their form or by their flag's name."""
    shown: list[str] = []
    is_value_of_secret = False
    for word in words:
        flag = _FLAG.fullmatch(word)
        is_secret = flag is not None and is_likely_name(flag[1])
        if is_value_of_secret and flag is None and is_literal(word):
            word = HIDDEN
        elif flag and is_secret and flag[2] and is_literal(flag[2][1:]):
            word = f"{word.partition('=')[0]}={HIDDEN}"

        shown.append(without_secrets(word))
        is_value_of_secret = is_secret and flag is not None and flag[2] is None
    return shown


def typed_without_secrets(words: Iterable[str]) -> list[str]:
    """Hide the secrets of a `trainyard` command.

    `--set TARGET=VALUE` keeps only TARGET if the target, or a key in the value,
    is a secret's name.
    """
    shown = []
    for word in words:
        lead = ""
        if word.startswith("--set="):
            lead = "--set="
        target, equals, value = word.removeprefix(lead).partition("=")
        names = [target.rpartition(".")[2], *_NAMES_IN_OVERRIDE.findall(value)]
        if equals and any(is_likely_name(name) for name in names):
            word = f"{lead}{target}={HIDDEN}"
        shown.append(without_secrets(word))
    return shown
