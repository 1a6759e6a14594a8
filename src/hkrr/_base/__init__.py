"""Modules that all other packages use, for example for linear algebra, threads, argument checks and checkpoints."""
