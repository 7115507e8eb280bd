"""Image builds: layers are reused where nothing changed, and a failed stage tags no image."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.bed.engine import BedEngine
from tests.bed.host import DockerHost
from tests.real.yard import Yard, wait_until
from trainyard import versions

BASE = "trainyard-bed/base:1"
CLUSTER = "name: {name}\nbackend: local\nimage: built\n"
DOCKERFILE = """\
ARG BASE
FROM ${BASE}
RUN --mount=type=secret,id=ca_bundle,target=/dev/shm/ca.pem \\
    --mount=type=secret,id=pip_config,target=/dev/shm/pip.conf \\
    cat /dev/shm/ca.pem /dev/shm/pip.conf 2> /dev/null | wc -c; env | grep -ic '^http_proxy=' || true
ENV PYTHONPATH=/opt/code
COPY files/ /
"""
# A number of seconds by which a test finds its own `sleep` among all processes.
SLEEPS = "271.828"


@pytest.fixture(scope="module")
def place(engine: BedEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    """Give a directory with an image of the user's own, `built`, and Docker with BuildKit."""
    yard = Yard(tmp_path_factory.mktemp("place"), environ=engine.environ())
    write_image(yard)
    yard.write_cluster(CLUSTER)
    yield yard
    for tag in engine.docker(
        "images", "--format", "{{.Repository}}:{{.Tag}}", "trainyard/built"
    ).stdout.split():
        engine.docker("rmi", "-f", tag, check=False)


@pytest.fixture
def without_buildx(place: Yard, engine: BedEngine, tmp_path: Path) -> Yard:
    """Give the same place without a `docker` command, and so without buildx."""
    return Yard(place.home, environ={"DOCKER_HOST": engine.address, "PATH": str(tmp_path)})


def write_image(yard: Yard, *, dockerfile: str = DOCKERFILE, code: str = "answer = 41\n") -> None:
    image = yard.home / "images" / "built"
    (image / "files" / "opt" / "code").mkdir(parents=True, exist_ok=True)
    (image / "files" / "opt" / "code" / "mine.py").write_text(code)
    (image / "Dockerfile").write_text(dockerfile)
    (image / "image.yaml").write_text(f"base: {BASE}\n")


def layers(engine: BedEngine, reference: str) -> list[str]:
    found = engine.docker(
        "image", "inspect", "--format", "{{json .RootFS.Layers}}", reference
    ).stdout
    return [str(layer) for layer in json.loads(found)]


def saved(engine: BedEngine, reference: str) -> bytes:
    return subprocess.run(
        ["docker", "save", reference],
        env={**os.environ, **engine.environ()},
        capture_output=True,
        check=True,
    ).stdout


def files_above_base(engine: BedEngine, reference: str) -> set[str]:
    """Return every path in the layers that the image has above its base."""
    names: set[str] = set()
    with tarfile.open(fileobj=io.BytesIO(saved(engine, reference))) as archive:
        manifest = json.loads(archive.extractfile("manifest.json").read())  # type: ignore[union-attr]
        for layer in manifest[0]["Layers"][len(layers(engine, BASE)) :]:
            with tarfile.open(fileobj=archive.extractfile(layer)) as content:
                names |= {entry.name.strip("/") for entry in content}
    return names


@pytest.mark.core
def test_an_image_is_built_once_and_changed_code_is_one_small_layer(
    place: Yard, engine: BedEngine
) -> None:
    write_image(place)
    first = place.json("image.build")
    again = place.json("image.build")
    assert first["reference"] == f"trainyard/built:{first['content']}"
    assert again["image_id"] == first["image_id"]
    assert [step["changed"] for step in again["steps"]] == [False, False, False]
    assert layers(engine, first["alias"]) == layers(engine, first["reference"])
    assert first["alias"] == f"trainyard/built:ray-{versions.RAY}"
    inspected = engine.docker(
        "image", "inspect", "--format", "{{json .Config.Labels}}", first["reference"]
    ).stdout
    labels = json.loads(inspected)
    assert labels["org.opencontainers.image.title"] == labels["io.trainyard.image"] == "built"
    assert (
        labels["org.opencontainers.image.version"]
        == labels["io.trainyard.content"]
        == first["content"]
    )

    assert labels["org.opencontainers.image.base.name"] == BASE
    assert labels["io.trainyard.ray"] == versions.RAY

    write_image(place, code="answer = 42\n")
    states = {one["name"]: one["state"] for one in place.json("image.list")["images"]}
    assert states["built"] == "changed since"
    assert {"ray-cpu", "isaac-lab", "isaac-ray", "schola", "torch"} <= set(states)
    shown = engine.docker("images", "-q", "trainyard/built").stdout
    assert "would    Build image built" in place.run("--dry", "image.build").stdout
    assert engine.docker("images", "-q", "trainyard/built").stdout == shown
    after = place.json("image.build")
    assert after["content"] != first["content"]
    assert layers(engine, after["reference"])[:-1] == layers(engine, first["reference"])[:-1]
    history = engine.docker(
        "history", "--human=false", "--format", "{{.Size}}", after["reference"]
    ).stdout.split()
    assert int(history[0]) < 1_000


def test_a_failed_stage_prints_its_last_lines_and_tags_nothing(
    place: Yard, engine: BedEngine
) -> None:
    shown = engine.docker("images", "-q", "trainyard/built").stdout
    write_image(
        place, dockerfile="ARG BASE\nFROM ${BASE}\nRUN seq 100; echo last; exit 7\nCOPY files/ /\n"
    )
    done = place.run("image.build", expect=6)
    said = "".join(rf"  \| {line}\n" for line in [*range(82, 101), "last"])
    failed = r"step 2/3 RUN seq 100; echo last; exit 7 failed \(exit code 7\)\n"
    mend = r"Repair the cause, then repeat the command: steps that worked are not run again\.\n"
    hint = rf"  -> Nothing was tagged\. {mend}"
    assert re.search(f"error: image built was not built: {failed}{said}{hint}$", done.stderr)
    assert engine.docker("images", "-q", "trainyard/built").stdout == shown


def test_an_interrupted_build_leaves_nothing_behind(place: Yard, engine: BedEngine) -> None:
    shown = engine.docker("images", "-q", "trainyard/built").stdout
    write_image(place, dockerfile=f"ARG BASE\nFROM ${{BASE}}\nRUN sleep {SLEEPS}\n")
    started = place.start("image.build")
    wait_until(lambda: bool(sleepers()), seconds=60, what="the stage runs")
    started.send_signal(signal.SIGINT)
    output, _ = started.communicate(timeout=60)
    assert (started.returncode, output.splitlines()[-1]) == (130, "error: interrupted")
    wait_until(lambda: not sleepers(), seconds=30, what="the stage's program has ended")
    wait_until(
        lambda: SLEEPS not in containers(engine), seconds=30, what="the stage's container is gone"
    )
    assert engine.docker("images", "-q", "trainyard/built").stdout == shown


def sleepers() -> list[int]:
    return [
        one.pid
        for one in psutil.process_iter(["cmdline"])
        if one.info["cmdline"] == ["sleep", SLEEPS]
    ]


def containers(engine: BedEngine) -> str:
    return engine.docker("ps", "-a", "--no-trunc", "--format", "{{.Command}}").stdout


def test_a_build_s_ways_to_the_outside_do_not_stay_in_the_image(
    place: Yard, engine: BedEngine, tmp_path: Path
) -> None:
    ca, pip = tmp_path / "ca.pem", tmp_path / "pip of ours.conf"
    ca.write_text("-----BEGIN CERTIFICATE----- company-ca-marker\n")
    pip.write_text("[global]\nindex-url = https://user:word-of-the-index@mirror/simple\n")
    files = ("--set", f"build.ca_bundle={ca}", "--set", f"build.pip_config='{pip}'")
    behind = Yard(
        place.home,
        environ={**engine.environ(), "HTTP_PROXY": "http://user:word-of-the-proxy@127.0.0.1:9"},
    )
    write_image(behind, code="answer = 45\n")
    done = behind.run("image.build", "--no-cache", *files)
    reference = next(word for word in done.stdout.split() if word.startswith("trainyard/built:"))
    # Prove that the stage saw all three secrets: print them, and fail.
    (behind.home / "images" / "built" / "Dockerfile").write_text(
        DOCKERFILE.replace("|| true", "; exit 3")
    )
    failed = behind.run("image.build", *files, expect=6)
    assert f"  | {ca.stat().st_size + pip.stat().st_size}\n  | 2\n" in failed.stderr
    content = (
        saved(engine, reference) + engine.docker("history", "--no-trunc", reference).stdout.encode()
    )
    secrets = (b"company-ca-marker", b"word-of-the-index", b"word-of-the-proxy")
    assert [word for word in secrets if word in content] == []
    # BuildKit mounts resolv.conf and hosts in etc: that leaves the directory etc itself.
    assert files_above_base(engine, reference) - {"etc"} == {"opt", "opt/code", "opt/code/mine.py"}


def test_without_buildx_nothing_is_built_and_the_plugin_is_named(without_buildx: Yard) -> None:
    write_image(without_buildx, code="answer = 46\n")
    done = without_buildx.run("image.build", expect=3)
    assert done.stderr.endswith(
        "error: `docker buildx` does not work here\n"
        "  -> Install Docker 23 or newer with its command line and its buildx plugin "
        "(Debian, Ubuntu: docker-buildx, or docker-buildx-plugin from Docker).\n"
    )


def test_a_base_that_cannot_be_had_is_named_before_anything_is_built(place: Yard) -> None:
    write_image(place)
    done = place.run("image.build", "--base", "127.0.0.1:9/nobody/base:1", expect=6)
    assert (
        "error: the base of image built cannot be pulled: 127.0.0.1:9/nobody/base:1\n"
        in done.stderr
    )
    assert "docker load -i FILE" in done.stderr


def test_without_a_registry_an_image_is_built_on_the_host_that_runs_it(
    docker_host: DockerHost, engine: BedEngine, tmp_path: Path
) -> None:
    yard = Yard(tmp_path, environ=docker_host.environ())
    write_image(yard, code="answer = 48\n")
    yard.write_cluster(
        "name: {name}\nbackend: compose\nimage: built\ncompose: {{docker: "
        f"'{docker_host.ssh}'}}}}\n"
    )
    docker_host.load(BASE)
    built = yard.json("image.build")

    assert (
        docker_host.docker(
            "image", "inspect", "--format", "{{.Id}}", built["reference"]
        ).stdout.strip()
        == (built["image_id"])
    )

    assert engine.docker("images", "-q", built["reference"]).stdout == ""
