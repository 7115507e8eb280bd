"""What several backends are made of: nodes of one machine, leashes, logs, records, and steps that
refuse.
"""
