"""The ground: numbers, units, errors, draws, tables, archives, processes, kernels."""
