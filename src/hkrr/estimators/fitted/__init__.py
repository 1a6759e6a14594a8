"""Methods of fitted models: predictions, uncertainty, feature importances, summaries and diagnostics."""
