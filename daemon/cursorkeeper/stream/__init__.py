"""The ack stream's server side: messages to events and back, handles, credits, both directions of
the stream.
"""
