"""From Pulsar's own cursors to ours and back: finding them, reading them without disturbing a
broker, planning, writing.
"""
