"""Pulsar's own bytes: the cursor-ledger entry, the cursor znode, PIP-381's chunks, the topic znode.
Pure.
"""
