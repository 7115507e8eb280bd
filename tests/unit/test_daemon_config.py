"""Docker's daemon.json gets one more registry, and keeps everything else."""

from __future__ import annotations

import json

import pytest

from trainyard.errors import PrerequisiteError
from trainyard.registry import daemon_config

WHERE = "/etc/docker/daemon.json"
LAB = "192.0.2.10:32000"

NVIDIA = """{
    "log-driver": "json-file",
    "runtimes": {
        "nvidia": {
            "args": [],
            "path": "nvidia-container-runtime"
        }
    },
    "default-runtime": "nvidia"
}
"""


def merged(text: str) -> str:
    return daemon_config.merged(text, LAB, where=WHERE)


def refusal(text: str) -> str:
    with pytest.raises(PrerequisiteError) as caught:
        merged(text)
    return str(caught.value)


@pytest.mark.parametrize("text", ["", "\n", "{}", "{}\n"])
def test_settings_that_say_nothing_get_the_registry(text: str) -> None:
    assert merged(text) == '{\n  "insecure-registries": [\n    "192.0.2.10:32000"\n  ]\n}\n'


def test_every_other_key_stays_in_its_place_and_as_it_is_indented() -> None:
    addition = ',\n    "insecure-registries": [\n        "192.0.2.10:32000"\n    ]\n}\n'
    assert merged(NVIDIA) == NVIDIA.removesuffix("\n}\n") + addition


def test_tabs_stay_tabs() -> None:
    assert merged('{\n\t"debug": true\n}\n') == (
        '{\n\t"debug": true,\n\t"insecure-registries": [\n\t\t"192.0.2.10:32000"\n\t]\n}\n'
    )


def test_registries_that_are_there_already_stay_before_the_new_one() -> None:
    text = '{"insecure-registries": ["198.51.100.1:5000"], "debug": true}'
    assert json.loads(merged(text)) == {"insecure-registries": ["198.51.100.1:5000", LAB], "debug": True}
    assert list(json.loads(merged(text))) == ["insecure-registries", "debug"]


def test_settings_with_the_registry_are_not_touched() -> None:
    text = f'{{"insecure-registries":["{LAB}"]}}'
    assert merged(text) == text
    assert daemon_config.has(text, LAB, where=WHERE)
    assert not daemon_config.has(NVIDIA, LAB, where=WHERE)


def test_letters_beyond_ascii_stay_readable() -> None:
    assert '"labels": [\n    "größe=1"\n  ]' in merged('{"labels": ["größe=1"]}')


def test_text_that_is_no_json_is_refused_with_line_and_column() -> None:
    assert refusal('{\n  "debug": true,\n}') == (
        "Docker's settings file is not JSON: Expecting property name enclosed in double quotes\n"
        "  at /etc/docker/daemon.json:3:1\n"
        "  -> Docker would not start with it. Repair it, then repeat this command; nothing was changed."
    )


def test_json_that_is_no_settings_is_refused() -> None:
    assert refusal("[]").startswith("Docker's settings file is not a JSON object\n")
    assert refusal('{"insecure-registries": "192.0.2.1"}').startswith(
        "Docker's settings file has insecure-registries that are not a list of texts\n"
    )
    assert refusal('{"debug": true, "debug": false}').startswith("Docker's settings file has the key 'debug' twice\n")
