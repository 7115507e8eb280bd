"""Faults between Docker and a registry: one clear error each, exit 6, no half-pushed image used."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest

from tests.bed.engine import BedEngine
from tests.real import registries
from tests.real.registries import BedRegistry
from tests.real.yard import wait_until
from trainyard.images.build import Built
from trainyard.images.content import source_tag
from trainyard.registry.certificates import KeyPair, make
from trainyard.seams.registry.errors import CertificateError, GoneError, LoginError, RegistryError
from trainyard.spec.docker import Registry

NOW = datetime.now(timezone.utc)
KB = 1000
MB = 1_000_000


@pytest.fixture(scope="module")
def image(engine: BedEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    with registries.tiny(
        engine, tmp_path_factory.mktemp("image"), 300 * KB, 400 * KB, 500 * KB
    ) as built:
        yield built


@pytest.fixture(scope="module")
def plain(engine: BedEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BedRegistry]:
    """Give a registry without TLS on an address that, unlike loopback, Docker does not trust."""
    directory = tmp_path_factory.mktemp("plain")
    with registries.registry(engine, directory, host=engine.bridge_ip) as running:
        yield running


@pytest.fixture(scope="module")
def tls(engine: BedEngine) -> KeyPair:
    return make(engine.bridge_ip, now=NOW)


@pytest.fixture
def ca_file(tls: KeyPair, tmp_path: Path) -> str:
    (tmp_path / "ca.pem").write_bytes(tls.certificate)
    return str(tmp_path / "ca.pem")


def tags_of(image: Built) -> list[str]:
    """Return the tags that a registry has after a push of the image."""
    return sorted(
        f"{image.name}:{tag}"
        for tag in (image.content, image.alias_local.rpartition(":")[2], source_tag(image.source))
    )


def test_a_login_that_is_wrong_or_missing_is_told(
    engine: BedEngine, image: Built, tmp_path: Path
) -> None:
    with registries.registry(engine, tmp_path, users={"ray": "right"}) as running:
        spec = Registry(
            address=running.address, insecure=True, username="ray", password_env="PASSWORD"
        )

        with pytest.raises(LoginError) as wrong:
            registries.push(engine, image, spec, environ={"PASSWORD": "wrong-one"})

        assert (
            wrong.value.what
            == f"registry {running.address} refuses the login of ray from $PASSWORD"
        )
        assert "wrong-one" not in str(wrong.value)

        with pytest.raises(LoginError) as missing:
            registries.push(engine, image, Registry(address=running.address, insecure=True))

        assert (
            missing.value.what == f"registry {running.address} asks for a login, and none is known"
        )
        assert running.tags() == []
        registries.push(engine, image, spec, environ={"PASSWORD": "right"})
        assert running.tags() == tags_of(image)


def test_a_ca_untrusted_here_is_told_from_one_untrusted_by_docker(
    engine: BedEngine, image: Built, tls: KeyPair, ca_file: str, tmp_path: Path
) -> None:
    with registries.registry(engine, tmp_path / "it", host=engine.bridge_ip, tls=tls) as running:
        with pytest.raises(CertificateError) as here:
            registries.push(engine, image, Registry(address=running.address))
        assert here.value.what == f"the certificate of registry {running.address} is not accepted"
        with pytest.raises(CertificateError) as docker:
            registries.push(engine, image, Registry(address=running.address, ca_file=ca_file))
        assert docker.value.what == f"Docker does not trust the CA of registry {running.address}"
        assert "trainyard registry.trust" in (docker.value.hint or "")


def test_plain_http_where_tls_is_expected(
    engine: BedEngine, image: Built, plain: BedRegistry
) -> None:
    with pytest.raises(CertificateError) as here:
        registries.push(engine, image, Registry(address=plain.address))
    assert here.value.what == f"registry {plain.address} speaks plain HTTP, and TLS is expected"
    with pytest.raises(CertificateError) as docker:
        registries.push(engine, image, Registry(address=plain.address, insecure=True))
    assert (
        docker.value.what == f"registry {plain.address} speaks plain HTTP, and Docker expects TLS"
    )
    assert docker.value.hint == "Make Docker here accept that: trainyard registry.trust"


def test_a_full_disk_of_the_registry_is_reported_and_leaves_no_tag(
    engine: BedEngine, image: Built, tmp_path: Path
) -> None:
    with registries.registry(engine, tmp_path, disk="800k") as running:
        spec = Registry(address=running.address, insecure=True)
        for _ in range(2):
            with pytest.raises(RegistryError) as caught:
                registries.push(engine, image, spec)
            assert caught.value.exit_code == 6
            assert caught.value.what == f"the disk of registry {running.address} is full"
        assert running.tags() == []


def test_a_registry_lost_in_mid_push_is_named_and_the_next_push_resumes(
    engine: BedEngine, tmp_path: Path
) -> None:
    with (
        registries.registry(engine, tmp_path / "it") as running,
        registries.tiny(engine, tmp_path / "image", 200 * KB, 300 * KB, 60 * MB) as image,
    ):
        spec = Registry(address=running.address, insecure=True)
        cut = Cut(running)
        with pytest.raises(GoneError) as caught:
            registries.push(engine, image, spec, report=cut)

        assert cut.done
        assert caught.value.what == f"registry {running.address} does not answer"
        assert "layers that arrived are not sent again" in (caught.value.hint or "")
        running.start()
        assert running.tags() == []
        pushed = registries.push(engine, image, spec)
        assert (pushed.layers_sent, pushed.layers_there) == (1, 2)
        assert running.tags() == tags_of(image)
        assert registries.push(engine, image, spec).bytes_sent == 0


def test_an_interrupted_push_ends_and_leaves_no_tag(engine: BedEngine, tmp_path: Path) -> None:
    def interrupt(text: str) -> None:
        if " MB" in text:
            raise KeyboardInterrupt

    with (
        registries.registry(engine, tmp_path / "it") as running,
        registries.tiny(engine, tmp_path / "image", 100 * KB, 60 * MB) as image,
    ):
        spec = Registry(address=running.address, insecure=True)
        with pytest.raises(KeyboardInterrupt):
            registries.push(engine, image, spec, report=interrupt)

        # Docker would continue a push whose client has only stopped listening.
        given_up = "client disconnected during blob PATCH"
        wait_until(
            lambda: running.requests(given_up) > 0, seconds=60, what="Docker gives the layer up"
        )
        assert running.tags() == []
        assert registries.push(engine, image, spec).layers_sent >= 1
        assert running.tags() == tags_of(image)


class Cut:
    """Kills a registry while the last layer is being sent."""

    def __init__(self, running: BedRegistry) -> None:
        self._running = running
        self.done = False

    def __call__(self, text: str) -> None:
        sent, _, of = text.partition(" of ")
        if (
            self.done
            or not of
            or int(sent) != int(of.split()[0]) - 1
            or int(of.split()[0]) < 2
            or " MB" not in text
        ):
            return
        self.done = True
        self._running.kill()
