"""Resizes of pods in place."""
