"""Whose login is used for a registry, and what is said when it is not there."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from trainyard.errors import PrerequisiteError
from trainyard.registry.access import ca_file
from trainyard.seams.ecr import region_of
from trainyard.seams.registry.auth import Login
from trainyard.seams.registry.login import docker_config, login
from trainyard.spec.docker import Registry

ADDRESS = "reg:5000"
BY_VARIABLE = Registry(address=ADDRESS, username="ray", password_env="SECRET")


def configured(directory: Path, **written: object) -> dict[str, str]:
    (directory / "config.json").write_text(json.dumps(written))
    return {"DOCKER_CONFIG": str(directory)}


def packed(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_the_cluster_files_user_comes_before_dockers(tmp_path: Path) -> None:
    environ = configured(tmp_path, auths={ADDRESS: {"auth": packed("other:word")}})
    assert login(BY_VARIABLE, {**environ, "SECRET": "open sesame"}) == Login("$SECRET", "ray", "open sesame")


def test_a_variable_that_is_not_set_is_named() -> None:
    with pytest.raises(PrerequisiteError) as caught:
        login(BY_VARIABLE, {})
    assert caught.value.lines() == [
        "$SECRET is not set: it is to hold the password of ray for registry reg:5000",
        "  -> Set it for this shell without writing it into its history: read -rs SECRET && export SECRET",
    ]


def test_a_password_file_is_read_without_its_line_end(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text(" open sesame \n")
    spec = Registry(address=ADDRESS, username="ray", password_file=str(path))
    assert login(spec, {}) == Login(str(path), "ray", " open sesame ")


@pytest.mark.parametrize("content", ["", "\n"])
def test_an_empty_password_file_is_told(tmp_path: Path, content: str) -> None:
    path = tmp_path / "password"
    path.write_text(content)
    with pytest.raises(PrerequisiteError) as caught:
        login(Registry(address=ADDRESS, username="ray", password_file=str(path)), {})
    assert caught.value.what == f"no password of ray for registry reg:5000: {path} is empty"


def test_docker_login_is_used_where_the_file_names_nobody(tmp_path: Path) -> None:
    environ = configured(tmp_path, auths={"https://reg:5000/v1/": {"auth": packed("ray:open:sesame")}})
    assert login(Registry(address=ADDRESS), environ) == Login(str(tmp_path / "config.json"), "ray", "open:sesame")


def test_an_identity_token_is_a_login(tmp_path: Path) -> None:
    environ = configured(tmp_path, auths={ADDRESS: {"identitytoken": "both"}})
    assert login(Registry(address=ADDRESS), environ) == Login(str(tmp_path / "config.json"), identity_token="both")


@pytest.mark.parametrize(
    "written", [{}, {"auths": {}}, {"auths": {ADDRESS: {}}}, {"auths": {"other": {"auth": "eDp5"}}}]
)
def test_nobody_logs_in_where_docker_knows_nobody(tmp_path: Path, written: dict[str, object]) -> None:
    assert login(Registry(address=ADDRESS), configured(tmp_path, **written)) is None
    assert login(Registry(address=ADDRESS), {"HOME": str(tmp_path / "empty")}) is None


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"auths": {"reg:5000": {"auth": "not base64"}}}', '{"auths": {"reg": 1}}']
)
def test_a_docker_configuration_that_cannot_be_read_is_not_passed_over(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(PrerequisiteError) as caught:
        login(Registry(address=ADDRESS), {"DOCKER_CONFIG": str(tmp_path)})
    assert caught.value.what.startswith("Docker's login for registry reg:5000 cannot be read: ")
    assert caught.value.where == str(tmp_path / "config.json")


def test_dockers_configuration_is_where_docker_has_it() -> None:
    assert docker_config({"DOCKER_CONFIG": "/etc/mine", "HOME": "/home/me"}) == Path("/etc/mine/config.json")
    assert docker_config({"HOME": "/home/me"}) == Path("/home/me/.docker/config.json")


def test_what_docker_trusts_on_this_host_is_trusted(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path / "state")}
    trust = tmp_path / "certs.d"
    (trust / ADDRESS).mkdir(parents=True)
    (trust / ADDRESS / "ca.crt").write_text("a CA")
    assert ca_file(Registry(address=ADDRESS), environ, docker_trust=trust) == trust / ADDRESS / "ca.crt"
    assert ca_file(Registry(address=ADDRESS, ca_file="/my/ca"), environ, docker_trust=trust) == Path("/my/ca")
    assert ca_file(Registry(address=ADDRESS, insecure=True), environ, docker_trust=trust) is None
    assert ca_file(Registry(address="other:1"), environ, docker_trust=trust) is None


@pytest.mark.parametrize(
    ("address", "region"),
    [
        ("123456789012.dkr.ecr.eu-central-1.amazonaws.com", "eu-central-1"),
        ("123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn", "cn-north-1"),
        ("123456789012.dkr-ecr.us-west-2.on.aws", "us-west-2"),
        ("123456789012.dkr.ecr-fips.us-gov-west-1.amazonaws.com", "us-gov-west-1"),
        ("127.0.0.1:5000", None),
    ],
)
def test_amazons_region_stands_in_the_registrys_name(address: str, region: str | None) -> None:
    assert region_of(address) == region
