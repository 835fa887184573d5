"""For every test: properties have no deadline. How long an example takes says how busy the machine is, not whether it holds."""

from hypothesis import settings

settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")
