"""Thin: read tables, call transforms, write results, say the exit code (0 clean, 1 findings, 2
failed).
"""
