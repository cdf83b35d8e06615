"""Aggregates usage samples into NodeMetrics: means, percentiles per window, staleness."""
