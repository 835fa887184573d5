"""A seeded simulation: real keepers on fakes that misbehave, in virtual time, against sources that
remember the truth.
"""
