"""Environment variables that must be set before SciPy is imported."""

import os

# Scikit-learn's estimator checks use array API inputs. SciPy supports these inputs only if this variable is set before
# SciPy is imported.
os.environ["SCIPY_ARRAY_API"] = "1"
