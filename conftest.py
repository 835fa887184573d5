"""For every test: what is green on one machine is green on every other.

Properties are checked with the same examples everywhere, whatever else was imported; `pytest
--hypothesis-profile new-examples` looks for more (`PYTEST_ADDOPTS` for make). How long an example
or its making takes says how busy a machine is, not whether a property holds.
"""

from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

settings.register_profile(
    "new-examples", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "same-examples", settings.get_profile("new-examples"), derandomize=True, database=None
)
settings.load_profile("same-examples")

# Hypothesis mixes numbers and texts into the examples that it finds in modules of ours, whichever
# are imported by then.
providers._get_local_constants = lambda: providers._local_constants
