"""Modules of the lowest layer, for example linear algebra, threads, argument checks and the journal of checkpoints."""
