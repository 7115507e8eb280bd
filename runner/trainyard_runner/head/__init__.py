"""The runner on the head: it runs the smoke test and submits tasks to Ray."""
