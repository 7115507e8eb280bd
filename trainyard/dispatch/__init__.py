"""Send a job to a cluster, follow its run, and fetch results.

No module here knows backends.
"""
