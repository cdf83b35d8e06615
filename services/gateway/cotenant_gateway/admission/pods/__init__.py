"""Admission of pods: their requests, their classes, and operators' requirements."""
