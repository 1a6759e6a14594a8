"""Environment variables that must be set before SciPy is imported."""

import os

# Scikit-learn's estimator checks use array API inputs, which SciPy supports only if this is set before its import.
os.environ["SCIPY_ARRAY_API"] = "1"
