"""Batch work gets what services leave."""
