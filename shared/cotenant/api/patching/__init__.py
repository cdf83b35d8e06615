"""The three PATCH types over verbatim documents: what a patch does not name stays byte for byte."""
