"""The Kubernetes API: objects, permissions, logs, commands in pods, and ports of pods."""
