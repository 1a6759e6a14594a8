"""Low-level modules: linear algebra, threads, argument checks, the journal of checkpoints, and others."""
