"""The remedies there are, one a file."""
