"""The charts of the sections on classes. A class has the same colour in all charts."""

from collections.abc import Sequence

from hkrr.reporting.class_errors import Calibration, RocCurve
from hkrr.reporting.class_input import Classes
from hkrr.reporting.class_regions import ClassCurves, ClassRegions
from hkrr.reporting.contour_image import regions_png
from hkrr.reporting.section_charts import UNIT
from hkrr.reporting.svg_chart import Chart

# Height of the strip of dots of a class below the probability axis, in units of the axis.
_STRIP = 0.06
# The range of an axis from 0 to 1. The margins keep lines at the ends visible.
_UNIT_RANGE = (-0.015, 1.015)


def colour_class(classes: Classes, k: int) -> str:
    """Return the CSS class of the colour of class k."""
    number = classes.colour(k)
    return "of-rest" if number is None else f"of-{number}"


def class_curves_chart(found: ClassCurves, classes: Classes, name: str) -> str:
    """Return a chart of the probabilities along a direction. Below it, each class has a strip with its rows as dots."""
    # The other class of two classes has the mirrored curve.
    shown = classes.coloured[1:] if classes.n_known == 2 else classes.coloured
    low = -_STRIP * (len(classes.coloured) + 0.5)
    ends = (found.at[0], found.at[-1])
    chart = Chart(f"class probabilities along {name}", ends, (low, 1.015), f"{name}, {UNIT}", "probability", least_y=0)
    for k in shown:
        chart.line(found.at, found.probability[k], f"line {colour_class(classes, k)}")
    for strip, k in enumerate(classes.coloured):
        at = [x for x, each in zip(found.dots_at, found.dots_class, strict=True) if each == k]
        # Small vertical offsets separate the dots of a strip.
        heights = [-_STRIP * (strip + 0.6 + 0.5 * (i * 0.618 % 1.0)) for i in range(len(at))]
        chart.dots(at, heights, f"dots {colour_class(classes, k)}")
    return chart.svg()


def class_regions_chart(found: ClassRegions, classes: Classes, names: Sequence[str]) -> str:
    """Return a chart of the regions of the classes over two directions, with the rows as dots."""
    first, second = names
    x, y = (found.across[0], found.across[-1]), (found.along[0], found.along[-1])
    chart = Chart(f"class regions over {first} and {second}", x, y, f"{first}, standard deviations", second, height=320)
    chart.image(regions_png(found, classes), x, y)
    across, along, of = zip(*found.dots, strict=True)
    chart.dots(across, along, "dots halo")
    for kind in sorted({colour_class(classes, k) for k in of}):
        inside = [i for i, k in enumerate(of) if colour_class(classes, k) == kind]
        chart.dots([across[i] for i in inside], [along[i] for i in inside], f"dots {kind}")
    return chart.svg()


def roc_chart(curves: Sequence[RocCurve], classes: Classes) -> str:
    """Return a chart of ROC curves, with the diagonal, which is the expected curve of random scores."""
    chart = Chart("ROC curves", _UNIT_RANGE, _UNIT_RANGE, "false positive rate", "true positive rate", height=300)
    chart.line((0.0, 1.0), (0.0, 1.0), "exact")
    for each in curves:
        chart.line(each.false_positive, each.true_positive, f"line {colour_class(classes, each.of)}")
    return chart.svg()


def calibration_chart(found: Calibration) -> str:
    """Return a reliability diagram: the fraction of correct predictions by probability, with 95% intervals."""
    # With K classes, the largest probability is at least 1 / K.
    low = min(min(each.low, each.predicted) for each in found.bins) - 0.05
    ends = (max(low, _UNIT_RANGE[0]), _UNIT_RANGE[1])
    names = ("probability of the predicted class", "fraction of correct predictions")
    chart = Chart("calibration curve", ends, ends, *names, height=300)
    chart.line(ends, ends, "exact")
    for each in found.bins:
        chart.line((each.predicted, each.predicted), (each.low, each.high), "interval")
    predicted = [each.predicted for each in found.bins]
    observed = [each.observed for each in found.bins]
    chart.line(predicted, observed)
    chart.dots(predicted, observed, "dots large")
    return chart.svg()
