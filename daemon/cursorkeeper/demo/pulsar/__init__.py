"""The product's promise, shown on real Pulsar brokers: one as it is, and one with the plugin, each
killed after its last receipt.

Runs from a checkout: `make demo-pulsar`.
"""
