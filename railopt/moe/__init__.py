"""MoE workloads: routing traces, expert placement, and what both do to the rails.  Import the
modules by name.
"""
