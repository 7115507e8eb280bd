"""Programs that follow the documented surface of snapd and MicroK8s, traps included, over the bed's
real Kubernetes.
"""
