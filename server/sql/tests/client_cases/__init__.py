"""Cases for clients of PostgreSQL, by the client."""
