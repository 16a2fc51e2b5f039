"""Everything that is searched or measured before sampling."""
