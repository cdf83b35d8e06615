"""The plugins that the service runs, one file each; `framework.plugin` describes what a plugin is."""
