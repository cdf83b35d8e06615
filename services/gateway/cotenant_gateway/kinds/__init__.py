"""How API objects are composed of a document and other services' facts, one file per kind."""
