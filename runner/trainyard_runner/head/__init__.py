"""The runner on the head.

This part of the runner runs the smoke test, submits tasks to Ray, retries and
records them.
"""
