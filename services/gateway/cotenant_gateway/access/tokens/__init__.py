"""Bearer tokens: of a file, of service accounts, of an OpenID issuer; their keys."""
