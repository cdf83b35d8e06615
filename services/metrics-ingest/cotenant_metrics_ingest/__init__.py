"""Usage samples become NodeMetric windows, percentiles and staleness."""
