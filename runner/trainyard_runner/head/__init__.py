"""The runner on the head: passes the gate, submits tasks to Ray, records and retries them."""
