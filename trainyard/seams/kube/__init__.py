"""The Kubernetes API: objects, permissions, logs, and ports of pods."""
