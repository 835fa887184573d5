"""One ack stream, for the client of this package and for the daemon's tests: messages, handles,
credit, groups. Programs import from `cursorkeeper_client` itself.
"""
