"""OpenAPI v3 and v2 of the kinds, and what of a body no schema knows."""
