"""What runs inside the PostgreSQL backend."""
