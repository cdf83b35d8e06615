"""The three PATCH types over verbatim documents: members that a patch does not name stay byte for byte."""
