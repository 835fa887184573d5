"""The data format's page is enough to write a reader from: `java/reader` against the daemon's own
reading.
"""
