"""Methods that change how scores become weights."""
