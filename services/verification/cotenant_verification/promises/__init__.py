"""What must hold whatever fails: one small function a promise, by subject, and the table of all (`table`)."""
