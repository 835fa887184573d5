"""Serves operators who put right what somebody else did to a cursor: its footer, its fencing token,
ledgers that nobody names.
"""
