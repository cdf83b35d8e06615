"""Metrics under the names of koordlet."""
