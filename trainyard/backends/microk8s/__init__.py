"""A multi-node MicroK8s on hosts that are reached by SSH, and then a cluster on it as on any Kubernetes."""
