"""The reading of pods: documents as shapes, and relations between pods."""
