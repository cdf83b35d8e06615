"""Admission of pods: what they ask for, their classes, and what operators demand of them."""
