"""Methods for tokens on a two-dimensional grid."""
