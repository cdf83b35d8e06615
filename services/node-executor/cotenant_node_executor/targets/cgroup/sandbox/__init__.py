"""A tree of plain files that imitates the kernel's refusals, for hosts where control groups are not writable."""
