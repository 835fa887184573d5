"""What a source may rely on holds for the daemon as for the fake: the same tests, another
keeper.
"""

from clients.tests.ack_stream.test_contract import *  # noqa: F403
