"""The promises that must hold under all faults: one small function each, by subject, and the table of all (`table`)."""
