"""The ack stream's server side: messages to events and back, handles, credits, both directions of
the stream.
"""

from cursorkeeper.compiled import prefer

prefer(__name__, __path__)
