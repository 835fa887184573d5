"""Records what this release writes, for the tests of every later one: `python -m
tools.record_release --out testdata/releases/VERSION`.
"""
