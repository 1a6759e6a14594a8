"""Experiments: small programs that show what the library does."""
