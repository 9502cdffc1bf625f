"""Methods that add a number per distance to the scores."""
