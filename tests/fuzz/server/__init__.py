"""A server that misbehaves in a hundred ways, and what commands owe whoever meets it."""
