"""Pure: DataFrame in, DataFrame out, ending in a schema of `schemas`. No session, no collect, no
cache, no I/O, no row UDF.
"""
