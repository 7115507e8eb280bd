"""What looks like a secret: in a file, in an environment variable, in a command that made a layer.

Said are the place and the kind, never the secret. Packages that were installed are not searched: their tests and
documentation are full of keys that open nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch

from trainyard.spec.fields import SECRET_NAME

LARGEST = 256 * 1024

_KEY = re.compile(
    rb"^-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----\s+(?:[A-Za-z-]+: .*\s+)*[A-Za-z0-9+/=]{24,}", re.MULTILINE
)
_URL_LOGIN = re.compile(rb"https?://[^\s/:@'\"$<>{}]+:[^\s/:@'\"$<>{}]+@")
_PASSWORD = re.compile(rb"(?im)^\s*_?password\b\s*[=:]?\s*\S+|\bpassword\s+\S+")

# Tokens that say themselves what they are, by the prefixes that their issuers chose. Looking for the prefixes alone is
# what most files cost.
_TOKENS: tuple[tuple[str, tuple[bytes, ...], re.Pattern[bytes]], ...] = (
    ("a key of AWS", (b"AKIA", b"ASIA"), re.compile(rb"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b(?<!EXAMPLE)")),
    ("a token of GitHub", (b"gh",), re.compile(rb"\b(?:gh[pousr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{40,})")),
    ("a token of GitLab", (b"glpat-",), re.compile(rb"\bglpat-[A-Za-z0-9_-]{20}")),
    ("a token of Hugging Face", (b"hf_",), re.compile(rb"\bhf_[A-Za-z0-9]{34}\b")),
    ("a key of NVIDIA", (b"nvapi-",), re.compile(rb"\bnvapi-[A-Za-z0-9_-]{50,}")),
    ("a token of PyPI", (b"pypi-AgE",), re.compile(rb"\bpypi-AgE[A-Za-z0-9_-]{50,}")),
    ("a token of Docker Hub", (b"dckr_",), re.compile(rb"\bdckr_[po]at_[A-Za-z0-9_-]{20,}")),
    ("a token of npm", (b"npm_",), re.compile(rb"\bnpm_[A-Za-z0-9]{36}\b")),
    ("a token of Slack", (b"xox",), re.compile(rb"\bxox[abprs]-[0-9A-Za-z-]{20,}")),
    ("a key of Google", (b"AIza",), re.compile(rb"\bAIza[0-9A-Za-z_-]{35}\b")),
    ("a key of Anthropic", (b"sk-ant-",), re.compile(rb"\bsk-ant-[A-Za-z0-9_-]{40,}")),
)

# Files that exist to hold a login: how their paths end, and what in them is the secret.
_FILES: tuple[tuple[str, str, re.Pattern[bytes]], ...] = (
    (r"[._]netrc", "a login and password", _PASSWORD),
    (r"\.pypirc", "a password", _PASSWORD),
    (r"\.git-credentials", "a login and password", _URL_LOGIN),
    (r"\.git/config", "a login and password", _URL_LOGIN),
    (r"pip\.(?:conf|ini)|uv\.toml", "a login and password", _URL_LOGIN),
    (r"\.aws/credentials", "keys of AWS", re.compile(rb"aws_secret_access_key\s*=\s*\S+")),
    (r"\.docker/config\.json|\.dockercfg", "a registry's login", re.compile(rb'"(?:auth|identitytoken)"\s*:\s*"[^"]')),
    (r"\.kube/config", "a login for Kubernetes", re.compile(rb"(?m)^\s*(?:token|password|client-key-data):\s*\S+")),
    (r"\.npmrc", "a token", re.compile(rb"_(?:authToken|auth|password)\s*=\s*[^\s$]")),
    (r"\.ray/auth_token", "Ray's token", re.compile(rb"\S{16,}")),
    (r"huggingface/token", "a token of Hugging Face", re.compile(rb"\S{16,}")),
    (r"\.vault-token", "a token of Vault", re.compile(rb"\S{16,}")),
)
_NAMED = tuple((re.compile(rf"(?:^|/)(?:{ending})$"), kind, content) for ending, kind, content in _FILES)
_SETTINGS = re.compile(r"(?:^|/)\.env(?:\.[\w-]+)?$")

# Made by packages, and public: what Debian's ssl-cert invents for each machine is the one key that opens nothing.
# /usr/src/app is where many keep their own code, and `exts` and `pkgs` may be anybody's: of these, only what Debian,
# Isaac Sim and conda put there.
_INSTALLED = re.compile(
    r"(?:^|/)(?:site-packages|dist-packages|node_modules|__pycache__|pip_prebundle)/"
    r"|^isaac-sim/(?:kit/)?exts[A-Za-z]*/|(?:^|/)(?:ana|mini|micro|mamba)?(?:conda|forge|mamba)[0-9]?/pkgs/"
    r"|^usr/src/linux-|^usr/(?:lib|share|include|bin|sbin|libexec)/|^(?:lib|lib64|bin|sbin)/|^var/(?:lib/dpkg|cache)/"
    r"|(?:^|/)lib/python3[0-9.]*/|\.(?:so|pyc|whl|png|jpg|gz|zip|usd|onnx|pt)$|/ssl-cert-snakeoil\.key$"
)
_SETTING = re.compile(r"""(?<![\w$])([A-Za-z_][A-Za-z0-9_-]*)=("[^"]*"|'[^']*'|[^\s"']+)""")
_BEARER = re.compile(r"(?i)\bbearer\s+[A-Za-z0-9._~+/-]{16,}")
_NO_SECRET = re.compile(r"(?i)|true|false|yes|no|none|null|\d{1,8}|[*x]+|\(hidden\)|[/$~<{].*|https?://[^@]*|file:.*")


def wanted(path: str, size: int) -> bool:
    """Say whether a file of a layer is worth reading."""
    return 0 < size <= LARGEST and not _INSTALLED.search(path)


def secret_in_file(path: str, content: bytes) -> str | None:
    """Return what secret a file holds, or None."""
    for name, kind, secret in _NAMED:
        if name.search(path) and secret.search(content):
            return kind
    if _is_key(content):
        return "a private key"
    if _SETTINGS.search(path):
        names = list(secret_settings(content.decode(errors="replace")))
        if names:
            return f"the value of {names[0]}"
    return _token(content)


def secrets_in_environment(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield "NAME: kind" for each variable, or label, that holds a secret."""
    for name, value in environ.items():
        if SECRET_NAME.search(name) and _is_literal(value):
            yield name
        elif kind := _kind_in_text(value):
            yield f"{name} ({kind})"


def secrets_in_command(command: str) -> Iterator[str]:
    """Yield what secrets stand in a command that made a layer, build arguments too."""
    yield from secret_settings(command)
    kind = _kind_in_text(command)
    if kind:
        yield kind


def secret_settings(text: str) -> Iterator[str]:
    """Yield the names in NAME=VALUE whose value is a secret, not a reference to one."""
    for name, value in _SETTING.findall(text):
        if SECRET_NAME.search(name.replace("-", "_")) and _is_literal(value.strip("\"'")):
            yield name.lstrip("-")


def is_excused(path: str, patterns: tuple[str, ...]) -> bool:
    """Say whether image.yaml says that this file is no secret."""
    return any(fnmatch(f"/{path}", pattern) for pattern in patterns)


def _is_literal(value: str) -> bool:
    """Say whether a value is the secret itself: not a path, a variable, a switch or a placeholder."""
    return len(value) >= 5 and not _NO_SECRET.fullmatch(value)


def _kind_in_text(text: str) -> str | None:
    content = text.encode()
    if _URL_LOGIN.search(content):
        return "a login and password in a URL"
    if _BEARER.search(text):
        return "a bearer token"
    return "a private key" if _is_key(content) else _token(content)


def _token(content: bytes) -> str | None:
    for kind, prefixes, token in _TOKENS:
        if any(prefix in content for prefix in prefixes) and token.search(content):
            return kind
    return None


def _is_key(content: bytes) -> bool:
    return b" KEY-----" in content and bool(_KEY.search(content))
