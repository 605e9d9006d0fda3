"""Rows and a table's schema: rows are made to fit it, or it evolves to fit them."""
