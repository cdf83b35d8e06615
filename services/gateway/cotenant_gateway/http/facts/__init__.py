"""cotenant's own endpoints: events, explain, dead letters, status."""
