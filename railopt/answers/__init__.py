"""The questions that users ask: gap, check, compare, frontier, blame, convert."""
