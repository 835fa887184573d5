"""The embedded stack and daemons as processes, for the requirements that only a real crash can
show.
"""

from daemon.tests.end_to_end.conftest import daemons, stack  # noqa: F401
