"""The control groups of a node whose pods kubelet runs: found by inotify, bound to the pods of LOG, written and restored."""
