"""The image file: what it accepts, and every problem with it at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainyard.errors import RequestError
from trainyard.spec.image import ImageFile, LintSection
from trainyard.spec.load import load_image


def load(directory: Path, text: str) -> ImageFile:
    (directory / "image.yaml").write_text(text)
    return load_image(directory)


def test_a_base_is_all_that_is_needed(tmp_path: Path) -> None:
    assert load(tmp_path, "base: debian:12\n") == ImageFile(base="debian:12")


def test_the_whole_of_it(tmp_path: Path) -> None:
    text = """\
base: registry:5000/rayproject/ray:{ray}-py310
arguments: {WHEEL: "ray-{ray}.whl"}
contents: {unreal/: ../build}
user: non-root
lint: {max_size: 3GiB, imports: [ray]}
"""

    assert load(tmp_path, text) == ImageFile(
        base="registry:5000/rayproject/ray:{ray}-py310",
        arguments={"WHEEL": "ray-{ray}.whl"},
        contents={"unreal": "../build"},
        user="non-root",
        lint=LintSection(max_size=3 * 2**30, imports=("ray",)),
    )


def test_everything_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    text = (
        "base: Debian:12\narguments: {BASE: x, A-B: y}\ncontents: {../up: /x, /abs: y}\nuser: "
        "nobody\nlnt: {}\n"
    )

    with pytest.raises(RequestError) as raised:
        load(tmp_path, text)

    file = tmp_path / "image.yaml"
    assert str(raised.value) == (
        "the image file is wrong: 6 problems\n"
        f"  - {file}:1: base: must name a directory below images/, or be an image reference such as "
        'registry:5000/team/schola:1.2 (lower case), got "Debian:12"\n'
        f"  - {file}:2: arguments.A-B: must be the name of an environment variable: letters, "
        "digits and '_', "
        'got "A-B"\n'
        f"  - {file}:3: contents.../up: must be a path inside of the image's directory, without "
        "'..', got \"../up\"\n"
        f"  - {file}:3: contents./abs: must be a path inside of the image's directory, without "
        "'..', got \"/abs\"\n"
        f'  - {file}:4: user: must be one of: root, non-root, any, got "nobody"\n'
        f"  - {file}:5: lnt: is not a known key; did you mean 'lint'?"
    )
