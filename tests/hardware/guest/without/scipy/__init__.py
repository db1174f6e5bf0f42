"""On the guest's path in front of SciPy: numba would import its linear algebra, which no kernel of
the sender uses.
"""

raise ImportError("the guest has no time for SciPy")
