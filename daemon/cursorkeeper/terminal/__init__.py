"""Serves people at a terminal: what all command lines share, those of the daemon's package and that
of the pipeline.
"""
