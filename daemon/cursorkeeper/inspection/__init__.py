"""Serves operators who look at stored cursors, and the fleet's tables: reading without a claim,
checks, and what is shown of them.
"""
