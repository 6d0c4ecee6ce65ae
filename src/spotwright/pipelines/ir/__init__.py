"""Compiled pipeline files (KFP's intermediate representation, IR): read them, check them, and read their settings."""
