"""Stand-ins for snapd and MicroK8s, which run the bed's real Kubernetes.

They follow the documented surface of both programs, including its traps.
"""
