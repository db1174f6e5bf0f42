"""The values: fabric, node, traffic, tokens, chunks, plan."""
