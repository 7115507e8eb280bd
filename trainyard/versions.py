"""Every pinned version, in one place."""

RAY = "2.60.0"
RUNNER_PROTOCOL = 1
# The newest KubeRay that could be run here with its real operator (docs/decisions/0010); its chart has the same number.
KUBERAY = "1.5.1"
# The oldest operator that knows authOptions, which the token needs (ray-operator/apis/ray/v1/raycluster_types.go).
OLDEST_KUBERAY = "1.5.0"
MICROK8S = "1.34/stable"
