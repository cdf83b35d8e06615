"""The plugins that the service runs, one file each; `framework.plugin` says what a plugin is."""
