"""The package that runs inside the PostgreSQL backend."""
