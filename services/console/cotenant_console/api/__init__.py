"""The console's side of the gateway's HTTP API: finding it, calling it, naming its kinds."""
