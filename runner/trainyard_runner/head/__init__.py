"""The runner on the head: passes the gate, hands tasks to Ray, records what they do, tries
again.
"""
