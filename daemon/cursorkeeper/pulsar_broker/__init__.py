"""What a Pulsar broker does with a cursor: its settings and limits, and what a flush of it keeps.
Pure.
"""
