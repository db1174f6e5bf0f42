"""Copies of experts from an old map to a new one: which GPU supplies each, in which batch, on which
rails.
"""
