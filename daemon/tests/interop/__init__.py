"""Pulsar's own managed-ledger classes against our Pulsar formats, on a real ZooKeeper and real
bookies.
"""
