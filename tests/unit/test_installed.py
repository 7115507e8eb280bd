"""Where Trainyard was installed from, and the wheel of what is installed."""

from __future__ import annotations

import json
import zipfile
from importlib.metadata import Distribution, PathDistribution
from pathlib import Path
from typing import Any

import pytest

from trainyard.seams import installed
from trainyard.seams.installed import Origin

WHEEL = "https://example.com/trainyard_ray-0.1.0-py3-none-any.whl"
GIT = "https://example.com/team/trainyard.git"


@pytest.mark.parametrize(
    ("direct_url", "origin"),
    [
        (None, Origin()),
        ({"url": WHEEL, "archive_info": {}}, Origin(WHEEL)),
        (
            {"url": WHEEL, "archive_info": {"hash": "sha256=ab", "hashes": {"sha256": "ab"}}},
            Origin(f"{WHEEL}#sha256=ab"),
        ),
        (
            {
                "url": GIT,
                "vcs_info": {"vcs": "git", "commit_id": "c0ffee", "requested_revision": "main"},
            },
            Origin(f"git+{GIT}@c0ffee"),
        ),
        (
            {"url": GIT, "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}, "subdirectory": "a"},
            Origin(f"git+{GIT}@c0ffee#subdirectory=a"),
        ),
        # Other machines have none of these: the installed files are taken.
        ({"url": "file:///home/me/trainyard", "dir_info": {}}, Origin()),
        ({"url": f"file:///tmp/{Path(WHEEL).name}", "archive_info": {}}, Origin()),
        ({"url": "file:///srv/t.git", "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}}, Origin()),
        (
            {"url": "file:///home/my%20self/trainyard", "dir_info": {"editable": True}},
            Origin(checkout=Path("/home/my self/trainyard")),
        ),
    ],
)
def test_an_installers_record_gives_the_origin_for_other_machines(
    direct_url: dict[str, Any] | None, origin: Origin
) -> None:
    text = None if direct_url is None else json.dumps(direct_url)
    assert installed.origin(text) == origin


def write_installation(site: Path) -> Distribution:
    """Write what pip leaves of a wheel: compiled files, a script and notes of its own too."""
    info = "trainyard_ray-0.1.0.dist-info"
    files = {
        "../../../bin/trainyard": "#!/usr/bin/python3",
        "trainyard/__init__.py": "code",
        "trainyard/__pycache__/__init__.cpython-311.pyc": "\x00",
        "trainyard/payload/images/run": "#!/bin/sh",
        f"{info}/METADATA": "Name: trainyard-ray\nVersion: 0.1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\n",
        f"{info}/INSTALLER": "pip",
        f"{info}/REQUESTED": "",
        f"{info}/direct_url.json": "{}",
    }
    for name, text in files.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)

    (site / "trainyard/payload/images/run").chmod(0o755)
    (site / info / "RECORD").write_text(
        "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    )

    return PathDistribution(site / info)


def test_the_wheel_of_an_installation_has_its_installed_files(tmp_path: Path) -> None:
    site = tmp_path / "lib/python3.11/site-packages"
    distribution = write_installation(site)
    path = installed.write_wheel(distribution, tmp_path / "one")
    assert path.name == "trainyard_ray-0.1.0-py3-none-any.whl"

    with zipfile.ZipFile(path) as wheel:
        executable = [
            entry.filename for entry in wheel.infolist() if entry.external_attr >> 16 & 0o100
        ]
        record = wheel.read("trainyard_ray-0.1.0.dist-info/RECORD").decode()

        assert wheel.namelist() == [
            "trainyard/__init__.py",
            "trainyard/payload/images/run",
            "trainyard_ray-0.1.0.dist-info/METADATA",
            "trainyard_ray-0.1.0.dist-info/WHEEL",
            "trainyard_ray-0.1.0.dist-info/entry_points.txt",
            "trainyard_ray-0.1.0.dist-info/RECORD",
        ]

    assert executable == ["trainyard/payload/images/run"]
    # printf code | openssl sha256 -binary | basenc --base64url
    assert "trainyard/__init__.py,sha256=VpTQii5T_8rgwxA-Wtb2B2q9lg6x-KVldwQLwQKPcCs,4\n" in record
    assert record.endswith("trainyard_ray-0.1.0.dist-info/RECORD,,\n")
    again = installed.write_wheel(distribution, tmp_path / "two")
    assert again.read_bytes() == path.read_bytes()


def test_without_a_record_there_is_no_wheel(tmp_path: Path) -> None:
    distribution = write_installation(tmp_path / "lib/python3.11/site-packages")
    Path(str(distribution.locate_file("trainyard_ray-0.1.0.dist-info/RECORD"))).unlink()
    with pytest.raises(FileNotFoundError, match="no RECORD says which files are installed"):
        installed.write_wheel(distribution, tmp_path)
