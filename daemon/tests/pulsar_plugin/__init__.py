"""The plugin for Pulsar's brokers: its classes with Pulsar's own, and whole brokers with its
jar.
"""
