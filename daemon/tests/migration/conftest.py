"""Fixtures: a Pulsar cluster in memory."""

from __future__ import annotations

import pytest

from daemon.tests.migration.pulsar_world import PulsarWorld


@pytest.fixture
def world() -> PulsarWorld:
    """Empty, without topics."""
    return PulsarWorld()
