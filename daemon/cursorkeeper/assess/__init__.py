"""What an Apache Pulsar cluster would deliver again if a broker died now, per cursor, and which
limit is to blame.
"""
