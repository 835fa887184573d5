"""A source whose output is the truth about its acks, for tests here and in containers."""
