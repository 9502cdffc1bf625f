"""Methods in which content meets position."""
