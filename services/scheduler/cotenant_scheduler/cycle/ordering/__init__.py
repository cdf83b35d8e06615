"""The order in which jobs are tried, and room that is reserved for the first."""
