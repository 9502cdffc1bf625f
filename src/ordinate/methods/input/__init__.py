"""Methods that give the tokens, or what queries and keys come from, a vector per position."""
