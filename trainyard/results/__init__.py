"""What a run leaves on the operator's machine: one directory per run, never rewritten by
another.
"""
