"""The fitted models of the tests of reports, as fixtures."""

import pytest

from support.models_to_report import fitted_model, searched_model, table_model


@pytest.fixture(scope="module")
def fitted():
    return fitted_model()


@pytest.fixture(scope="module")
def searched():
    return searched_model()


@pytest.fixture(scope="module")
def table():
    return table_model()
