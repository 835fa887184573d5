"""The data source: options, planning, and one module per table. Only `reader` and `tables` know
Spark.
"""
