"""The fleet as tables: a PySpark data source over footers and cursor ledgers, and the jobs on
it.
"""
