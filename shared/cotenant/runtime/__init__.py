"""The processes around the cores: connections, following, storing, telemetry."""
