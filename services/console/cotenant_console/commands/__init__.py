"""One file a command: each holds `command`, a click command that is imported only when it is called."""
