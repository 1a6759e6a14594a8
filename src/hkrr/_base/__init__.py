"""Modules that all other packages use: arrays, Cholesky factors, threads, argument checks, hashing, the journal."""
