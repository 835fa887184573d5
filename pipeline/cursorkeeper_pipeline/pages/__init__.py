"""Pages for people: one HTML file each, nothing loaded from anywhere. Pure: numbers in, text out;
no Spark.
"""
