"""The configuration document, validated once at start, and the policy resolved from it."""
