"""Several audits of one kind under named settings."""
