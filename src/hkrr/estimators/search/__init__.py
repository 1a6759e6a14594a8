"""The search of `HyperKernelRidgeCV` and `HyperKernelEnsemble`, which selects lambda, the map and the kernel.

- `search_and_refit` runs a search and the final fits.
- `search_stages` combines the stages of the search. `directions` finds directions, `kernel_race` compares kernels and
  shapes of the map, and `held_out_check` tests a map on held-out rows.
- `adam_on_batches` learns a map from random batches of the rows, and `lasso_columns` selects columns for sparse maps.
- `stacking` computes the weights of an ensemble.
- `robust_noise` computes the weights of a heavy-tailed (Student-t) noise model, which reduce the influence of outliers.
- `search_problem` is the input of the search, with the resources that its stages share.
- `candidates` defines the models that are compared, and `path_table` the table of all runs.
- `final_fit` computes the coefficients on all rows.
- `time_budget` divides a time limit between the search and the final fits.
- `progress` calls the callbacks of the user.
"""
