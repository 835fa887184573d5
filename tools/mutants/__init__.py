"""Mutation testing of the core and the runtime, for whoever changes them: which rule could be lost
without a test noticing.
"""
