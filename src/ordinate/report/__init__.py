"""A comparison told: as tables for the terminal, as figures for pages and papers."""
