"""Spot markets as arrays: windows of availability and price, from recorded traces or a seeded model. Needs numpy.

Windows of one recording overlap and share their spells, so they are no independent samples: judge a policy on another part of the
time, another zone or another year, never on other windows of the same part.
"""
