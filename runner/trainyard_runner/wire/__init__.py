"""What operator, head and node tell each other, and what they work out alike; standard library
only.
"""
