"""Run the steps of ``hkrr fit`` on a mutated table: read, hold out rows, encode, and optionally fit a small model."""

import warnings

import hkrr
from hkrr.cli.fit import read_split
from hkrr.tables import TableClassifier, TableRegressor, compare, read_pieces

KINDS = ("csv", "parquet")


def outcome(path, target, fits):
    """Run the steps on a file, and return "refused", "read", "fitted", or a description of an unexpected failure.

    `fits` says whether a model is fitted.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fit to meaningless data causes warnings
        try:
            # Rows are held out only if the target is yy. Without held-out rows, small tables can be used too.
            split = read_split(str(path), target, [], 0.2 if target == "yy" else 0.0, 0)
            n_rows = sum(len(piece) for piece in read_pieces(path))
            model = _unfitted(split.task.of_classes, fits)
            model.fit(split.train, split.y_train)
            X = model.transform(split.test)
            if fits and len(X):
                compare(model, split)
        except (hkrr.TableError, hkrr.FitError) as error:
            return "refused" if _is_one_line(error) else f"message of several lines: {error!r}"
        except ValueError as error:  # the estimators refuse numbers that are too large
            return "refused" if fits and _is_one_line(error) else f"raised {type(error).__name__}: {error}"
        except Exception as error:
            return f"raised {type(error).__name__}: {error}"
    if len(split.y_train) + len(split.y_test) > n_rows or X.shape != (len(split.y_test), len(model.feature_names_out_)):
        return f"inconsistent: {len(split.y_train)} and {len(split.y_test)} rows of {n_rows}"
    return "fitted" if fits else "read"


def _unfitted(of_classes, fits):
    """Return a small model for the table. If `fits` is False, its fit does nothing."""
    quick = {"n_init": 1, "time_limit": 0.3, "random_state": 0}
    if of_classes:
        return TableClassifier(hkrr.HyperKernelClassifier(**quick) if fits else _Constant())
    return TableRegressor(hkrr.HyperKernelRidgeCV(n_components=1, **quick) if fits else _Constant())


class _Constant:
    """A regressor or classifier whose fit does nothing."""

    def get_params(self, deep=False):
        return {}

    def fit(self, X, y):
        return self


def _is_one_line(error):
    return "\n" not in str(error) and 0 < len(str(error)) < 2000
