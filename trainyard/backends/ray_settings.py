"""How Ray is set on every node that we start, whoever starts it; pure."""

from __future__ import annotations

from trainyard.backends.plans import NodePlan

# Ray's job supervisor gives a runner this long from SIGTERM to SIGKILL; its default of 3 s is too short to bring
# outputs back (ray/dashboard/modules/job/job_manager.py).
JOB_STOP_SECONDS = 8
# How long an uploaded package stays in the cluster (ray/_private/runtime_env/packaging.py; default 10 minutes).
PACKAGE_SECONDS = 7 * 24 * 3600
# Five refused checks make a node dead, and only then are its tasks tried again; Ray's default takes 15 to 20 s. A check
# that a busy node does not answer still counts only after 10 s (ray/common/ray_config_def.h, health_check_*).
HEALTH_CHECK_MS = 1000
# A machine that stands still with its connections open (frozen, paused, hung) refuses no call: only gRPC's keepalive
# ends one, by default after 300 + 120 s (ray_config_def.h, grpc_client_keepalive_*). Dead after 46 s instead of 55 s.
KEEPALIVE_MS, KEEPALIVE_TIMEOUT_MS = 10_000, 15_000
# pip and uv try again by themselves what the network broke; Ray's default of 3 tells a wrong package after 54 s.
RUNTIME_ENV_TRIES = 2
# Ray gives its dashboard 60 s; on 2 cores with a load of 10 it was seen to take longer.
DASHBOARD_SECONDS = 150


def node_arguments(plan: NodePlan) -> list[str]:
    """Return the arguments of `ray start` that say which node it is and what Ray may hand out on it."""
    return [
        f"--node-name={plan.name}",
        f"--labels=ray.io/node-group={plan.group}",
        f"--num-cpus={plan.cpus}",
        f"--num-gpus={plan.gpus}",
        f"--memory={plan.memory}",
        f"--object-store-memory={plan.object_store}",
    ]


def variables(plan: NodePlan, *, token_file: str) -> dict[str, str]:
    """Return Ray's settings that are environment variables: who may ask, and what makes it quick."""
    # Without an autoscaler of any kind Ray's dashboard says only then what its nodes have free (/nodes?view=summary).
    return {**_auth(plan, token_file), **settings(), "RAY_enable_autoscaler_v2": "1"}


def settings() -> dict[str, str]:
    """Return those that are the same on every node, whoever brings the token to it."""
    return {
        "RAY_DASHBOARD_STARTUP_TIMEOUT_S": str(DASHBOARD_SECONDS),
        "RAY_JOB_STOP_WAIT_TIME_S": str(JOB_STOP_SECONDS),
        "RAY_RUNTIME_ENV_URI_PIN_EXPIRATION_S": str(PACKAGE_SECONDS),
        "RUNTIME_ENV_RETRY_TIMES": str(RUNTIME_ENV_TRIES),
        "RAY_USAGE_STATS_ENABLED": "0",
        # Workers start as soon as tasks wait, side by side: a no-op run takes 3.5 s instead of 5.7 s.
        "RAY_enable_worker_prestart": "1",
        "RAY_health_check_initial_delay_ms": str(HEALTH_CHECK_MS),
        "RAY_health_check_period_ms": str(HEALTH_CHECK_MS),
        "RAY_grpc_client_keepalive_time_ms": str(KEEPALIVE_MS),
        "RAY_grpc_client_keepalive_timeout_ms": str(KEEPALIVE_TIMEOUT_MS),
    }


def _auth(plan: NodePlan, token_file: str) -> dict[str, str]:
    if plan.auth == "token":
        return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": token_file}
    return {"RAY_AUTH_MODE": "disabled"}
