"""Whole Pulsar brokers (`cluster`), for tests and benchmarks, and the product's promise shown on
them: one as it is, and one with the plugin, each killed after its last receipt.

It needs a checkout, where Maven has resolved the brokers' classes: `make demo-pulsar`.
"""
