"""Admission: what happens to an object between the request and the log. One rule, one small pure function."""
