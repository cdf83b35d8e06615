"""`cotenant simulate`: the services' own cores in one process under a virtual clock."""
