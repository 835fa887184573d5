"""Cursors whose topics or subscriptions Pulsar has no more: how they are found, and how they are
deleted. For operators.
"""
