"""A cluster where everybody asks who calls: ZooKeeper and bookies with TLS and users (`cluster`), a
gateway and a daemon on it (`system`), and brokers (`broker`), with certificates made on the way.

For the demo on secured brokers, and for tests. It needs a checkout.
"""
