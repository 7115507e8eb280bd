"""Head and workers as instances of EC2, made by `ray up` and by Ray's autoscaler on the head."""

from __future__ import annotations

from typing import Any, NoReturn

from trainyard.backends import contract
from trainyard.backends.contract import Traits
from trainyard.errors import RequestError

TRAITS = Traits(names_change=True, pushed_image="cluster.up", has_leash=False)
documents = contract.nothing_to_show
diagnose = contract.nothing_to_diagnose
discover = contract.nothing_to_discover


def _not_yet(*_: Any, **__: Any) -> NoReturn:
    raise RequestError("backend 'ec2' cannot do this yet", hint="Choose another one: `backend:` in the cluster file.")


up_steps = down_steps = status = connect = logs = shell = verify = _not_yet
