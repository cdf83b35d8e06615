"""Whether an object may be stored: one file a kind, and the field errors that say why not."""
