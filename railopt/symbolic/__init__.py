"""Theorems: what is claimed, what checks it, and where it applies.

registry     proofs/THEOREMS.toml;  run: all its checks and counterexamples, and Coq's kernel
applies      which theorems hold on a given fabric
statements   what the checks decide, with algebra (SymPy, exact) and result (what one says)
search       adversarial inputs, and counterexamples that were found
coq          Coq's files, built and audited
"""
