"""What an engine says about images, and how far a pull is."""

from __future__ import annotations

import pytest

from trainyard.seams.docker.images import ImageFacts, LayerTally, facts, split_tag


def test_an_engines_answer_as_facts() -> None:
    answer = {
        "Id": "sha256:1",
        "RepoTags": ["trainyard/mine:1"],
        "RepoDigests": ["registry:5000/mine@sha256:2"],
        "Os": "linux",
        "Architecture": "arm64",
        "Variant": "v8",
        "Size": 7,
        "Created": "2026-11-21T15:00:00Z",
        "RootFS": {"Layers": ["sha256:3"]},
        "Config": {"Env": ["A=b=c", "EMPTY="], "Labels": {"l": "m"}, "User": "ray", "Entrypoint": ["/x"], "Cmd": None},
    }
    assert facts(answer) == ImageFacts(
        id="sha256:1",
        tags=("trainyard/mine:1",),
        digests=("registry:5000/mine@sha256:2",),
        labels={"l": "m"},
        user="ray",
        entrypoint=("/x",),
        env={"A": "b=c", "EMPTY": ""},
        size=7,
        layers=("sha256:3",),
        platform="linux/arm64/v8",
        created="2026-11-21T15:00:00Z",
    )


def test_an_image_that_says_little() -> None:
    bare = facts({"Id": "sha256:1", "Config": None, "RepoTags": None})
    assert (bare.tags, bare.labels, bare.user, bare.entrypoint, bare.env, bare.platform) == ((), {}, "", None, {}, "")


@pytest.mark.parametrize(
    ("reference", "split"),
    [
        ("debian:12", ("debian", "12")),
        ("debian", ("debian", None)),
        ("registry:5000/team/debian", ("registry:5000/team/debian", None)),
        ("registry:5000/debian:12", ("registry:5000/debian", "12")),
        ("registry:5000/debian@sha256:ab", ("registry:5000/debian@sha256:ab", None)),
    ],
)
def test_a_port_is_no_tag(reference: str, split: tuple[str, str | None]) -> None:
    assert split_tag(reference) == split


def test_layers_and_bytes_of_a_pull() -> None:
    tally = LayerTally()
    assert not tally.count({"status": "Pulling from library/debian", "id": "12"})
    assert not tally.count({"status": "Digest: sha256:1"})
    for layer in ("a", "b", "c"):
        assert tally.count({"status": "Pulling fs layer", "id": layer})
    tally.count({"status": "Already exists", "id": "a"})
    tally.count({"status": "Downloading", "id": "b", "progressDetail": {"current": 30_000_000, "total": 90_000_000}})
    assert tally.text() == "1 of 3 layers, 30 of 90 MB"
    tally.count({"status": "Download complete", "id": "b"})
    assert tally.text() == "1 of 3 layers, 90 of 90 MB"
    tally.count({"status": "Pull complete", "id": "b"})
    assert tally.text() == "2 of 3 layers, 90 of 90 MB"


def test_a_push_of_what_is_there_has_no_bytes() -> None:
    tally = LayerTally()
    tally.count({"status": "Preparing", "id": "a"})
    tally.count({"status": "Layer already exists", "id": "a"})
    tally.count({"status": "Mounted from mine", "id": "b"})
    assert tally.text() == "2 of 2 layers"
