"""The system in containers: images, networks, one class per node, the whole stack, faults, and the
checker of acks.
"""
