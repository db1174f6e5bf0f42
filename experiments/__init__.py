"""Experiments: one folder a paper's figure or table.  They import railopt, never the reverse."""
