"""Foreign text and tables."""
