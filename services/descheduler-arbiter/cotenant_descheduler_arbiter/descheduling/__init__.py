"""The descheduling cycle: runs the profiles' plugins once per interval."""
