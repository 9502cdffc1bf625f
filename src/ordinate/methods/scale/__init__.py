"""Methods that multiply the scores, or the product itself, by something of the distance."""
