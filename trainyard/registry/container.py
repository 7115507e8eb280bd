"""A registry's container, which a change of settings replaces.

The volume of images stays.

Trainyard sets the paths of configuration and data, since their defaults differ
between images (registry:2, registry:3, Debian's).
"""

from __future__ import annotations

import hashlib
import json
import secrets
from typing import Any

import bcrypt

from trainyard.registry import certificates
from trainyard.registry.certificates import KeyPair
from trainyard.registry.target import LABEL, Target
from trainyard.seams.docker import containers
from trainyard.seams.docker.containers import Container
from trainyard.seams.registry.login import named_login
from trainyard.steps import YES, Answer, no

PORT = 5000
DATA = "/var/lib/registry"
HOME = "/etc/trainyard-registry"
CONFIG = f"{HOME}/config.yml"
HTPASSWD = f"{HOME}/htpasswd"
CERTIFICATE = f"{HOME}/certificate.pem"
KEY = f"{HOME}/certificate.key"
# The registry computes the hash for each request, and a push makes dozens. Cost 8 takes about
# 15 ms.
BCRYPT_COST = 8
# bcrypt uses only the first 72 bytes of a password.
LONGEST_PASSWORD = 72
# A hash of all settings of the container.
SETTINGS_LABEL = "io.trainyard.registry.settings"
# With so many rounds, guessing the password from the settings' hash is as slow as from htpasswd.
PBKDF2_ROUNDS = 200_000
# States of a started container. Another step asks whether it keeps running.
STARTED = ("running", "restarting")


def is_started(target: Target) -> Answer:
    """Say whether a container with the desired settings was started."""
    container = target.container
    if container is None:
        return no("there is no container")
    if not _is_as_desired(target, container):
        return no("its settings, password or certificate differ")
    if container.state in STARTED:
        return YES
    return no(f"it is {container.state}")


def start(target: Target) -> None:
    """Start the container, and first make or replace it if necessary."""
    container = target.container
    if container is None or not _is_as_desired(target, container):
        content = files(target)
        remove(target)
        containers.create_volume(target.engine, target.name, labels={LABEL: target.address})
        new = containers.NewContainer(
            image=target.registry.image,
            labels={LABEL: target.address, SETTINGS_LABEL: _settings_hash(target)},
            command=[CONFIG],
            ports={PORT: (target.bind_address, target.host_port.port)},
            volumes={target.name: DATA},
        )
        identifier = containers.create(target.engine, target.name, new)
        containers.put_files(target.engine, identifier, content)

    containers.start(target.engine, target.name)


def remove(target: Target) -> None:
    """Stop the container and remove it; the volume stays.

    The container may be writing an upload, so it is stopped first.
    """
    container = target.container
    if container:
        containers.stop(target.engine, container.id)
        containers.remove(target.engine, container.id)


def read_certificate(target: Target, container: Container) -> KeyPair | None:
    """Read certificate and key from the container; None if it has none.

    They differ from this machine's if another machine made the container.
    """
    pem = containers.read_file(target.engine, container.id, CERTIFICATE)
    key = containers.read_file(target.engine, container.id, KEY)
    if pem and key:
        return KeyPair(pem, key)
    return None


def _is_as_desired(target: Target, container: Container) -> bool:
    # "created": `start` was interrupted before the container had its files, or starting failed.
    if container.state == "created":
        return False
    return container.labels.get(SETTINGS_LABEL) == _settings_hash(target)


def _settings_hash(target: Target) -> str:
    registry = target.registry
    login = named_login(target.registry, target.environ)
    password = login.password.encode() if login else b""
    salt = registry.address.encode()
    password_hash = hashlib.pbkdf2_hmac("sha256", password, salt, PBKDF2_ROUNDS).hex()

    pair = None
    if not registry.insecure:
        pair = certificates.load(target.state)
    certificate = pair.certificate.decode() if pair else None

    settings = [registry.image, target.bind_address, registry.address, registry.username]
    settings += [password_hash, certificate]
    return hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:12]


def files(target: Target) -> dict[str, bytes]:
    """Return the files to put into the container, by path."""
    # The registry asks for a password only if the cluster file names a login. An entry of `docker
    # login` for its address does not count.
    login = named_login(target.registry, target.environ)
    tls = not target.registry.insecure
    content = {CONFIG: config(tls=tls, login=login is not None)}
    if login:
        content[HTPASSWD] = htpasswd_line(login.username, login.password)
    pair = certificates.load(target.state)
    if tls and pair:
        content |= {CERTIFICATE: pair.certificate, KEY: pair.key}
    return content


def config(*, tls: bool, login: bool) -> bytes:
    """Return the registry's configuration.

    "Configuring a registry" on distribution.github.io describes its keys. The
    configuration is JSON, which is valid YAML. Unfinished uploads are removed
    after a day instead of a week, because they may have filled the disk.
    """
    document: dict[str, Any] = {
        "version": "0.1",
        # A cache of layer descriptors would still list layers that garbage collection has removed.
        "storage": {
            "filesystem": {"rootdirectory": DATA},
            "delete": {"enabled": True},
            "maintenance": {
                "uploadpurging": {"enabled": True, "age": "24h", "interval": "1h", "dryrun": False}
            },
        },
        # The secret signs the state of uploads in flight.
        "http": {"addr": f":{PORT}", "secret": secrets.token_hex(16)},
        "health": {"storagedriver": {"enabled": True, "interval": "10s", "threshold": 3}},
    }
    if tls:
        document["http"]["tls"] = {"certificate": CERTIFICATE, "key": KEY, "minimumtls": "tls1.2"}
    if login:
        document["auth"] = {"htpasswd": {"realm": "trainyard", "path": HTPASSWD}}
    return json.dumps(document, indent=2).encode()


def htpasswd_line(username: str, password: str) -> bytes:
    hashed = bcrypt.hashpw(password.encode()[:LONGEST_PASSWORD], bcrypt.gensalt(BCRYPT_COST))
    return f"{username}:".encode() + hashed + b"\n"
