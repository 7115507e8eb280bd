"""The Kubernetes API: objects, rights, logs, and ports of pods."""
