"""Manifests as users write them: reading them with their line numbers, and applying them on what is stored."""
