"""The runner on the head: runs the smoke test, submits tasks to Ray, retries and records them."""
