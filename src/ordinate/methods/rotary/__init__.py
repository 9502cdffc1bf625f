"""Methods that turn queries and keys."""
