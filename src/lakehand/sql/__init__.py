"""SQL statements that maintain tables, and the system tables."""
