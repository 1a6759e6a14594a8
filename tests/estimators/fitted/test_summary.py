"""Tests of the summary of a fitted model."""

import dataclasses
import html.parser

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.utils import estimator_html_repr

import hkrr
from hkrr import HyperKernelEnsemble, HyperKernelRidge, HyperKernelRidgeCV
from hkrr.tables import TableRegressor
from support.handmade_models import made_ensemble, made_model

NAMES = ["age", "height", "weight", "speed"]


def test_text():
    text = str(made_model(names=NAMES).summary())
    for line in (
        "Rows                  300",
        "Columns               4",
        "Centers               40",
        "Directions            2",
        "Kernel                gaussian, gamma 0.8",
        "lambda                0.001, given",
        "R2, training rows     0.9300 (7% of the variance unexplained)",
        "Effective dimension   22.2, the trace of the hat matrix",
        "Stopped after 12 iterations: stalled, no step lowers the objective further",
    ):
        assert line in text
    assert "1  weight 1.00:" in text
    assert all(name in text for name in NAMES)
    assert repr(made_model(names=NAMES).summary()) == text


def test_loadings_and_importances():
    model = made_model(n_components=1, names=NAMES)
    summary = model.summary()
    strongest = NAMES[int(np.argmax(np.abs(hkrr.estimators.fitted.importance.loadings(model)[0])))]
    assert summary.directions[0].split()[4] == strongest
    assert dict(summary.importances) == pytest.approx(dict(zip(NAMES, model.feature_importances_, strict=True)))


@pytest.mark.parametrize("n_features", [1, 3, 200])
@pytest.mark.parametrize("n_components", [1, 12])
@pytest.mark.parametrize("n_targets", [1, 3])
def test_width(n_features, n_components, n_targets):
    names = [f"a column with a name that is much too long, number {j}" for j in range(n_features)]
    model = made_model(min(n_components, n_features), n_features, n_targets=n_targets, names=names)
    text = str(model.summary())
    assert max(map(len, text.splitlines())) <= 78
    assert (f"{n_features - 10} others" in text) == (n_features > 10)
    assert ("and 6 more" in text) == (min(n_components, n_features) == 12)
    assert ("Targets" in text) == (n_targets > 1)


def test_findings_are_included():
    model = made_model()
    model.diagnostics_ = dataclasses.replace(model.diagnostics_, still_falling=True, remedies=("max_iter",))
    assert "! the maximum number of iterations was reached" in str(model.summary())


def test_missing_information():
    """Summaries work without diagnostics, without numbers of rows, for a constant y, and for an unknown stop reason."""
    model = made_model()
    del model.diagnostics_
    text = str(model.summary())
    assert "No diagnostics" in text
    assert "Rows" not in text
    model = made_model()
    model.diagnostics_ = dataclasses.replace(model.diagnostics_, n_rows=None, n_centers=None, explained_share=None)
    model.result_ = dataclasses.replace(model.result_, reason="bored", message="there was nothing to do")
    text = str(model.summary())
    assert "undefined: y is constant" in text
    assert "bored, see result_.message (there was nothing to do)." in " ".join(text.split())


@pytest.mark.parametrize(
    ("shape", "says"),
    [("identity", "identity: one scale for all columns"), ("diagonal", "diagonal: a scale for each column")],
)
def test_maps_without_directions(shape, says):
    model = made_model(3, 3, cls=HyperKernelRidgeCV)
    model.map_shape_ = shape
    text = str(model.summary())
    assert says in " ".join(text.split())
    assert "does not mix columns" in text
    assert "score (BIC, in nats) -812.5" in text


def test_fitted_and_saved_models(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=80)
    grid = {"cv": 2, "criterion": "training", "n_init": 1, "random_state": 0}
    models = {
        ", learned": HyperKernelRidgeCV(1, n_init=1, random_state=0),
        "held-out mean squared error": HyperKernelRidgeCV(1, reg_lambdas=[1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5], **grid),
    }
    for says, model in models.items():
        text = str(model.fit(X, y).summary())
        assert says in text
        assert "Rows                  80 distinct" in text
        hkrr.save(model, tmp_path / "model")
        assert str(hkrr.load(tmp_path / "model").summary()) == text


def test_text_of_an_ensemble():
    model = made_ensemble(names=NAMES)
    summary = model.summary()
    text = str(summary)
    for line in (
        "Rows                  300",
        "Columns               4",
        "Noise                 standard deviation 0.5",
        "R2, training rows     0.9300 (7% of the variance unexplained)",
        "  weight  kernel    map       directions  columns  centers",
        "  0.750   gaussian  full      2           values   40",
        "  0.200   anova     diagonal  4           values   40",
        "  Of the first member, with weight 0.750:",
        "Stopped after 12 iterations: stalled, no step lowers the objective further",
    ):
        assert line in text
    assert summary.directions[1:] == model.members_[0].summary().directions
    assert dict(summary.importances) == pytest.approx(dict(zip(NAMES, model.feature_importances_, strict=True)))
    model.diagnostics_ = dataclasses.replace(model.diagnostics_, still_falling=True, remedies=())
    assert "! the maximum number of iterations was reached" in str(model.summary())
    alone = made_ensemble()
    alone.members_, alone.weights_ = alone.members_[:1], np.ones(1)
    assert alone.summary().directions == alone.members_[0].summary().directions


def test_members_of_an_ensemble_have_summaries():
    text = " ".join(str(made_ensemble().members_[1].summary()).split())
    assert "lambda 0.001, learned" in text
    assert "No diagnostics: this is a member of an ensemble" in text


def test_interrupted_ensemble_with_several_targets():
    model = made_ensemble(
        n_targets=3, names=[f"a column with a name that is much too long, number {j}" for j in "abcd"]
    )
    assert "Targets               3\nNoise                 standard deviation 0.5 to 2" in str(model.summary())
    assert max(map(len, str(model.summary()).splitlines())) <= 78
    del model.diagnostics_, model.noise_variance_
    text = str(model.summary())
    assert "No diagnostics" in text
    assert "Noise" not in text


def test_fitted_ensemble():
    """Test the summary of a fitted ensemble inside a table regressor, with the names of its columns."""
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(size=60), "kind": rng.choice(["x", "y"], 60)})
    y = np.sin(frame["age"]) + (frame["kind"] == "x") + 0.1 * rng.normal(size=60)
    table = TableRegressor(HyperKernelEnsemble(n_init=1, random_state=0)).fit(frame, y)
    summary = table.summary()
    assert len(summary.members) == len(table.model_.members_)
    assert {name for name, _ in summary.importances} == set(table.feature_names_out_)
    assert summary.facts == table.model_.summary().facts
    assert table.model_.diagnostics_.remedies == ("n_init",)  # no other parameter could change a finding
    assert ("Noise", f"standard deviation {np.sqrt(table.model_.noise_variance_):.4g}") in summary.facts


class _Balanced(html.parser.HTMLParser):
    """HTML parser that fails if a closing tag does not match the last open tag."""

    def __init__(self):
        super().__init__()
        self.open, self.text = [], ""

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_html():
    parser = _Balanced()
    parser.feed(made_model(names=["<b>", "height", "weight", "speed"]).summary()._repr_html_())
    assert parser.open == []
    for says in ("<b>", "22.2, the trace of the hat matrix", "weight 0.50", "stalled"):
        assert says in parser.text
    parser = _Balanced()
    parser.feed(made_ensemble().summary()._repr_html_())
    assert parser.open == []
    for says in ("Members", "0.200anovadiagonal4values40", "Of the first member"):
        assert says in parser.text


@pytest.mark.parametrize("cls", [HyperKernelRidge, HyperKernelEnsemble])
def test_not_fitted(cls):
    with pytest.raises(NotFittedError):
        cls().summary()


@pytest.mark.parametrize("cls", [HyperKernelRidge, HyperKernelRidgeCV, HyperKernelEnsemble])
def test_scikit_learn_diagram(cls):
    fitted = made_ensemble() if cls is HyperKernelEnsemble else made_model(cls=cls)
    for model, state in ((cls(), "Not fitted"), (fitted, "Fitted")):
        diagram = estimator_html_repr(model)
        assert cls.__name__ in diagram
        assert f"<span>{state}</span>" in diagram
        assert model._repr_html_().count(cls.__name__) == diagram.count(cls.__name__)
