"""Whose login is used for a registry, and what is said when it is not there."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from trainyard.errors import PrerequisiteError
from trainyard.seams.registry.auth import Login
from trainyard.seams.registry.login import login
from trainyard.spec.docker import Registry

ADDRESS = "reg:5000"
AUTH = base64.b64encode(b"ray:open:sesame").decode()


def configured(directory: Path, **written: object) -> dict[str, str]:
    (directory / "config.json").write_text(json.dumps(written))
    return {"DOCKER_CONFIG": str(directory)}


def test_the_cluster_files_user_comes_before_dockers(tmp_path: Path) -> None:
    environ = configured(tmp_path, auths={ADDRESS: {"auth": AUTH}})
    by_variable = Registry(address=ADDRESS, username="ray", password_env="SECRET")
    assert login(by_variable, {**environ, "SECRET": "open sesame"}) == Login(
        "$SECRET", "ray", "open sesame"
    )
    with pytest.raises(
        PrerequisiteError, match=r"Set it for this shell .*: read -rs SECRET && export SECRET"
    ):
        login(by_variable, environ)


def test_a_password_file_is_read_without_its_line_end_and_is_not_empty(tmp_path: Path) -> None:
    path = tmp_path / "password"
    by_file = Registry(address=ADDRESS, username="ray", password_file=str(path))
    path.write_text(" open sesame \n")
    assert login(by_file, {}) == Login(str(path), "ray", " open sesame ")
    path.write_text("\n")
    with pytest.raises(
        PrerequisiteError, match=f"no password of ray for registry reg:5000: {path} is empty"
    ):
        login(by_file, {})


@pytest.mark.parametrize(
    ("auths", "expected"),
    [
        ({"https://reg:5000/v1/": {"auth": AUTH}}, {"username": "ray", "password": "open:sesame"}),
        ({ADDRESS: {"identitytoken": "both"}}, {"identity_token": "both"}),
        ({ADDRESS: {}}, None),
        ({"other": {"auth": AUTH}}, None),
    ],
)
def test_dockers_login_is_used_if_the_file_names_no_user(
    tmp_path: Path, auths: dict[str, object], expected: dict[str, str] | None
) -> None:
    used = login(Registry(address=ADDRESS), configured(tmp_path, auths=auths))
    assert used == (Login(str(tmp_path / "config.json"), **expected) if expected else None)
    assert login(Registry(address=ADDRESS), {"HOME": str(tmp_path / "empty")}) is None


def test_a_docker_configuration_that_cannot_be_read_is_not_passed_over(tmp_path: Path) -> None:
    text = '{"auths": {"reg:5000": {"auth": "not base64"}}}'
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(PrerequisiteError) as caught:
        login(Registry(address=ADDRESS), {"DOCKER_CONFIG": str(tmp_path)})
    assert caught.value.what.startswith("Docker's login for registry reg:5000 cannot be read: ")
    assert caught.value.where == str(tmp_path / "config.json")
