"""Properties are judged by what they say, never by how long a busy machine takes for an example."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("unhurried", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")
