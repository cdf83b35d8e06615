"""OpenAPI v3 and v2 of the kinds, and unknown members of bodies."""
