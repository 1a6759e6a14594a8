"""Mutated tables through the path of ``hkrr fit``: read, the target and rows held out, encoded, and a tiny fit."""

import warnings

import hkrr
from hkrr.cli.fit import prepare
from hkrr.tables import TableRegressor, compare, read_pieces

KINDS = ("csv", "parquet")


def outcome(path, target, fits):
    """Return what becomes of a file: "refused", "read", "fitted", or what should not have been."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a fit to nonsense
        try:
            # Without rows held out too: tables of a few rows go through then.
            model = TableRegressor(hkrr.HyperKernelRidgeCV(n_components=1, n_init=1, time_limit=0.3, random_state=0))
            split = prepare(str(path), target, [], 0.2 if target == "yy" else 0.0, 0, model)
            n_rows = sum(len(piece) for piece in read_pieces(path))
            if not fits:
                model.regressor = _Nothing()
            model.fit(split.train, split.y_train)
            X = model.transform(split.test)
            if fits and len(X):
                compare(model, split)
        except (hkrr.TableError, hkrr.FitError) as error:
            return "refused" if _is_a_line(error) else f"said {error!r}"
        except ValueError as error:  # of the estimators: numbers that are too large
            return "refused" if fits and _is_a_line(error) else f"raised {type(error).__name__}: {error}"
        except Exception as error:
            return f"raised {type(error).__name__}: {error}"
    if len(split.y_train) + len(split.y_test) > n_rows or X.shape != (len(split.y_test), len(model.feature_names_out_)):
        return f"unsound: {len(split.y_train)} and {len(split.y_test)} rows of {n_rows}"
    return "fitted" if fits else "read"


class _Nothing:
    """A regressor that learns nothing."""

    def get_params(self, deep=False):
        return {}

    def fit(self, X, y):
        return self


def _is_a_line(error):
    return "\n" not in str(error) and 0 < len(str(error)) < 2000
