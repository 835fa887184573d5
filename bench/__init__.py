"""Benchmarks. Each prints ratios against a baseline measured in the same run; absolute times belong
to one machine.
"""
