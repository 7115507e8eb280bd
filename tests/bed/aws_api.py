"""The AWS API of a bed's cloud: moto, and a proxy for the features that moto lacks.

`python -m tests.bed.aws_api SETTINGS` serves it. The proxy adds faults on request, EC2's quotas,
instance metadata by the caller's address, AMIs, and addresses inside the bed: moto itself invents
public addresses that other machines own. The proxy logs every request to requests.jsonl.
"""

from __future__ import annotations

import fnmatch
import io
import json
import logging
import os
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.bed import aws_dns, aws_moto
from tests.bed.aws_moto import Backends

# The access key of the bed itself: its requests meet no fault and are not logged.
OWNER = "bed-owner"
Start = Callable[..., Any]


@dataclass(frozen=True)
class Fault:
    """An answer to matching requests in moto's place, `times` times (None: always).

    The first fault that matches a request applies. `action` is a pattern such as "ec2:RunInstances"
    or "ec2:*". `parameters` are the request's, as the client sends them, such as
    "Placement.AvailabilityZone". `caller` is the address of the client, "instance" for any
    instance, or "operator" for this machine. Without a `code`, moto answers the request after a
    delay of `seconds`.
    """

    action: str
    code: str = ""
    message: str = ""
    status: int = 400
    times: int | None = None
    parameters: dict[str, str] = field(default_factory=dict)
    caller: str = ""
    seconds: float = 0.0
    # Distinguishes faults that are otherwise equal.
    number: int = 0


@dataclass(frozen=True)
class Settings:
    """Settings of the process; `network` is the VPC's.

    `public` is the prefix of public addresses, such as 198.18.1.
    """

    address: str
    port: int
    network: str
    public: str
    directory: str
    amis: list[dict[str, Any]]


@dataclass(frozen=True)
class Request:
    """The parts of a request that the bed reads; `key` is the access key that signed it.

    `parameters` are empty for REST services.
    """

    action: str
    parameters: dict[str, str]
    caller: str
    key: str
    form: bool


class Api:
    """The WSGI application: it answers a request itself, or passes the request to moto."""

    def __init__(self, settings: Settings, moto: Any, backends: Backends) -> None:
        self._settings = settings
        self._moto = moto
        self._backends = backends
        self._used: dict[int, int] = {}
        self._lock = threading.Lock()
        self._log = (Path(settings.directory) / "requests.jsonl").open("a")

    def __call__(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        if environ["PATH_INFO"].startswith("/latest/"):
            return self._metadata(environ, start)

        request = _read(environ)
        fault = self._fault(request)
        if fault:
            time.sleep(fault.seconds)

        if fault and fault.code:
            self._write_down(request, f"{fault.status} {fault.code}")
            return _answer(start, fault.status, *_error(request, fault))

        if (
            request.action.startswith("servicequotas:")
            and request.parameters.get("ServiceCode") == "ec2"
        ):
            self._write_down(request, "200")
            return _answer(
                start, 200, json.dumps(_quotas(request, self._control()["quotas"])), JSON
            )

        if request.action == "pricing:GetProducts":
            self._write_down(request, "200")
            return _answer(start, 200, json.dumps({"PriceList": _prices(request)}), JSON)

        if request.action == "iam:SimulatePrincipalPolicy":
            self._write_down(request, "200")
            return _answer(start, 200, _simulated(request, self._control()["faults"]), XML)

        def started(status: str, *rest: Any) -> Any:
            self._write_down(request, status.split()[0])
            return start(status, *rest)

        return self._moto(environ, started)  # type: ignore[no-any-return]

    def _control(self) -> dict[str, Any]:
        return json.loads((Path(self._settings.directory) / "control.json").read_text())  # type: ignore[no-any-return]

    def _fault(self, request: Request) -> Fault | None:
        """Return the first fault that matches the request and is not used up."""
        if request.key == OWNER:
            return None
        with self._lock:
            for fault in (Fault(**described) for described in self._control()["faults"]):
                used = self._used.get(fault.number, 0)
                if self._fits(fault, request) and (fault.times is None or used < fault.times):
                    self._used[fault.number] = used + 1
                    return fault
        return None

    def _fits(self, fault: Fault, request: Request) -> bool:
        caller = "operator" if request.caller == self._settings.address else "instance"
        return (
            fnmatch.fnmatchcase(request.action, fault.action)
            and fault.caller in ("", caller, request.caller)
            and fault.parameters.items() <= request.parameters.items()
        )

    def _write_down(self, request: Request, status: str) -> None:
        if request.key == OWNER:
            return
        with self._lock:
            line = {"time": time.time(), "status": status, **asdict(request)}
            self._log.write(json.dumps(line) + "\n")
            self._log.flush()

    def _metadata(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        """Answer as the instance metadata service: only to instances, each about itself."""
        path = environ["PATH_INFO"].removeprefix("/latest/").strip("/")
        instance = self._backends.instance(environ["REMOTE_ADDR"])
        if instance is None:
            return _answer(start, 404, "")
        if path == "api/token":
            return _answer(start, 200, "bed-token")
        found = aws_moto.metadata(self._backends, instance).get(path.removeprefix("meta-data/"))
        return _answer(start, 200 if found is not None else 404, found or "")


FORM, JSON, XML = "application/x-www-form-urlencoded", "application/x-amz-json-1.1", "text/xml"


def _read(environ: dict[str, Any]) -> Request:
    """Parse a signed request, and restore its body for moto to read."""
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    environ["wsgi.input"] = io.BytesIO(body)
    signed = environ.get("HTTP_AUTHORIZATION", "").partition("Credential=")[2].split("/")
    service = signed[3] if len(signed) > 3 else ""
    form = environ.get("CONTENT_TYPE", "").startswith(FORM)
    action = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}"
    parameters: dict[str, str] = {}

    if form:
        parameters = dict(urllib.parse.parse_qsl(body.decode(), keep_blank_values=True))
        action = parameters.get("Action", action)
    elif target := environ.get("HTTP_X_AMZ_TARGET"):
        given = json.loads(body or b"{}")
        parameters = {
            key: value if isinstance(value, str) else json.dumps(value)
            for key, value in given.items()
        }
        action = target.rpartition(".")[2]

    return Request(f"{service}:{action}", parameters, environ["REMOTE_ADDR"], signed[0], form)


def _error(request: Request, fault: Fault) -> tuple[str, str]:
    """Return (body, content type) of an error in the protocol of the request's service."""
    if not request.form:
        return json.dumps({"__type": fault.code, "message": fault.message}), JSON
    said = f"<Code>{fault.code}</Code><Message>{fault.message}</Message>"
    if request.action.startswith("ec2:"):
        return (
            f"<Response><Errors><Error>{said}</Error></Errors><RequestID>bed</RequestID></Response>",
            XML,
        )
    error = f"<Error><Type>Sender</Type>{said}</Error>"
    return f"<ErrorResponse>{error}<RequestId>bed</RequestId></ErrorResponse>", XML


def _quotas(request: Request, quotas: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Answer a request to Service Quotas about EC2: moto knows the quotas of VPCs only."""
    listed = [
        {
            "ServiceCode": "ec2",
            "ServiceName": "Amazon EC2",
            "QuotaCode": code,
            "QuotaName": quota["name"],
        }
        | {"Value": quota["value"], "Unit": "None", "Adjustable": True, "GlobalQuota": False}
        for code, quota in quotas.items()
    ]

    if request.action.startswith("servicequotas:List"):
        return {"Quotas": listed}

    return {
        "Quota": next(
            quota for quota in listed if quota["QuotaCode"] == request.parameters["QuotaCode"]
        )
    }


def _prices(request: Request) -> list[str]:
    """Answer as the price list does, which moto lacks: m5.large per hour, gp3 per GB and month."""
    asked = {part["Field"]: part["Value"] for part in json.loads(request.parameters["Filters"])}
    price = {"m5.large": "0.0960", "gp3": "0.0800"}.get(
        asked.get("instanceType") or asked.get("volumeApiName", "")
    )
    dimensions = {"1.1.1": {"unit": "Hrs", "pricePerUnit": {"USD": price}}}
    return (
        [json.dumps({"terms": {"OnDemand": {"1.1": {"priceDimensions": dimensions}}}})]
        if price
        else []
    )


def _simulated(request: Request, faults: list[dict[str, Any]]) -> str:
    """Report every action as allowed, except those that a fault denies."""
    denied = [
        fault["action"]
        for fault in faults
        if fault["code"] in ("AccessDenied", "UnauthorizedOperation")
    ]

    results = []
    for action in (
        value
        for name, value in request.parameters.items()
        if name.startswith("ActionNames.member.")
    ):
        decision = (
            "implicitDeny"
            if any(fnmatch.fnmatchcase(action, each) for each in denied)
            else "allowed"
        )
        results.append(
            f"<member><EvalActionName>{action}</EvalActionName><EvalDecision>{decision}</EvalDecision></member>"
        )

    said = (
        f"<IsTruncated>false</IsTruncated><EvaluationResults>{''.join(results)}</EvaluationResults>"
    )
    name = "SimulatePrincipalPolicy"

    return f"<{name}Response><{name}Result>{said}</{name}Result></{name}Response>"


def _answer(start: Start, status: int, text: str, kind: str = "text/plain") -> Iterable[bytes]:
    body = text.encode()
    start(f"{status} bed", [("Content-Type", kind), ("Content-Length", str(len(body)))])
    return [body]


def _end_with(parent: int) -> None:
    """End this process once its parent, the test run, is gone: a killed run cannot end it."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(0)


def main(path: str) -> None:
    """Serve until the process is killed."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    # Moto reads these variables when it is imported.
    for switch in (
        "EC2_ENABLE_INSTANCE_TYPE_VALIDATION",
        "ENABLE_AMI_VALIDATION",
        "IAM_LOAD_MANAGED_POLICIES",
    ):
        os.environ[f"MOTO_{switch}"] = "true"

    os.environ["MOTO_EC2_LOAD_DEFAULT_AMIS"] = "false"
    from moto.moto_server.werkzeug_app import (
        DomainDispatcherApplication,
        MotoRequestHandler,
        create_backend_app,
    )
    from werkzeug.serving import run_simple

    # Werkzeug would print a line for each request: requests.jsonl has them already.
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    settings = Settings(**json.loads(Path(path).read_text()))
    aws_moto.stay_inside(settings.network, settings.public)
    backends = Backends()
    aws_moto.register(backends, settings.amis)
    here = (settings.address, settings.port, settings.network.removesuffix("0.0/16"))
    threading.Thread(target=aws_dns.serve, args=here, daemon=True).start()
    api = Api(settings, DomainDispatcherApplication(create_backend_app), backends)
    run_simple(
        settings.address, settings.port, api, threaded=True, request_handler=MotoRequestHandler
    )


if __name__ == "__main__":
    main(sys.argv[1])
