"""Environment variables that must be set before SciPy is imported."""

import os

# The estimator checks of scikit-learn use array API inputs, which SciPy supports only if this is set before its import.
os.environ["SCIPY_ARRAY_API"] = "1"
