"""Names, numbers and subjects: the vocabulary that everything else is written in."""
