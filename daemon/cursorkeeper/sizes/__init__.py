"""How many bytes one acknowledgement state takes in each encoding: the size table of Pulsar issue
#25985, computed anew.
"""
