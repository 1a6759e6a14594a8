"""Settings that must hold before SciPy is imported."""

import os

# scikit-learn's estimator checks try array API inputs too, and SciPy must be asked for those before its import.
os.environ["SCIPY_ARRAY_API"] = "1"
