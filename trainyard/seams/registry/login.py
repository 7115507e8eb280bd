"""The login to a registry: the cluster file's, `docker login`'s, or AWS's.

Secrets get only into requests to the registry and the Docker engine, never into
arguments, logs or messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from docker.auth import load_config
from docker.errors import DockerException

from trainyard.errors import PrerequisiteError
from trainyard.seams import ecr
from trainyard.seams.registry.auth import Login
from trainyard.spec.docker import Registry


def login(registry: Registry, environ: Mapping[str, str]) -> Login | None:
    """Return the cluster file's login, or else Docker's; None if anonymous.

    Raises PrerequisiteError if the cluster file's password cannot be found.
    """
    return named_login(registry, environ) or docker_login(registry.address, environ)


def named_login(registry: Registry, environ: Mapping[str, str]) -> Login | None:
    """Return the login that the cluster file names, if any.

    Raises PrerequisiteError if its password cannot be found.
    """
    if registry.login == "ecr":
        return ecr.login(registry.address, environ)
    if not registry.username:
        return None
    source, password = _password(registry, registry.username, environ)
    return Login(source, registry.username, password)


def docker_login(address: str, environ: Mapping[str, str]) -> Login | None:
    """Return the login in Docker's file or credential helper, if any."""
    home = Path(environ.get("HOME", "~")).expanduser()
    path = Path(environ.get("DOCKER_CONFIG") or home / ".docker") / "config.json"
    if not path.exists():
        return None

    try:
        configuration = load_config(str(path), credstore_env=dict(environ))
        entry = configuration.resolve_authconfig(address) or {}
    except (DockerException, ValueError, OSError) as error:
        # Like Docker, Trainyard fails instead of pushing without a login.
        raise PrerequisiteError(
            f"Docker's login for registry {address} cannot be read: {error}",
            where=str(path),
            hint=f"Log in again: docker login {address}",
        ) from error

    known = {key.lower(): str(value) for key, value in entry.items() if value}
    if known.get("identitytoken"):
        return Login(str(path), identity_token=known["identitytoken"])
    if known.get("username") and known.get("password"):
        return Login(str(path), known["username"], known["password"])

    return None


def _password(registry: Registry, user: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the password's source, and the password."""
    if registry.password_env:
        variable = registry.password_env
        if environ.get(variable):
            return f"${variable}", environ[variable]
        raise PrerequisiteError(
            f"${variable} is not set: it must hold the password of {user} for registry "
            f"{registry.address}",
            hint="Set it for this shell without writing it into its history: read -rs "
            f"{variable} && export {variable}",
        )

    path = Path(registry.password_file or "").expanduser()
    try:
        password = path.read_text().strip("\r\n")
        if not password:
            raise ValueError(f"{path} is empty")
    except (OSError, ValueError) as error:
        raise PrerequisiteError(
            f"no password of {user} for registry {registry.address}: {error}",
            hint="registry.password_file names a file that holds the password and nothing else.",
        ) from error
    return str(path), password
