"""The HTML of two sections: "Columns and directions" and "The learned function"."""

from __future__ import annotations

from html import escape

from hkrr._maps import ShapeName
from hkrr.reporting.directions import Direction, Directions, Loading
from hkrr.reporting.html_elements import bars, figure, panel, table
from hkrr.reporting.report_data import Facts
from hkrr.reporting.section_charts import curve_chart, map_chart
from hkrr.reporting.text_formatting import count, formula, number, percent, shortened


def directions_section(facts: Facts) -> str:
    """Return the section on the importances of the columns and the directions."""
    found = facts.directions
    others = f"{count(found.n_columns_left_out, 'less important column')} not shown."
    panels = [
        panel(
            "Columns",
            "<p>How much the prediction changes with a typical change of each column, as a fraction of the total.</p>"
            + bars(found.importances, False, found.n_columns_left_out, others),
        )
    ]
    if found.shape == ShapeName.FULL and len(found.directions) > 1:
        shares = [Loading(f"Direction {each.number}", each.share) for each in found.directions]
        panels.append(
            panel(
                "Directions",
                "<p>How much the prediction changes with a typical change along each direction, as a fraction "
                "of the total.</p>" + bars(shares, signed=False),
            )
        )
    if found.shape == ShapeName.FULL:
        panels += [panel(f"Direction {each.number}", _direction(each, found)) for each in found.directions]
    return (
        f'<p>{escape(_introduction(found))}</p>{_members(found)}<div class="tabs" data-tabs="Columns and directions">'
        f"{''.join(panels)}</div>"
    )


_MAPS = {ShapeName.IDENTITY: "one scale for all columns", ShapeName.DIAGONAL: "a scale for each column"}


def _members(found: Directions) -> str:
    """Return the HTML table of the members of an ensemble, or "" for a single model."""
    if not found.members:
        return ""
    rows = [
        [f"{each.weight:.2f}", each.kernel, _MAPS.get(each.shape, count(each.n_components, "direction"))]
        for each in found.members
    ]
    return table(["weight", "kernel", "map"], rows, "Models and their weights")


def _introduction(found: Directions) -> str:
    if found.of_ensemble:
        text = f"The prediction is a weighted sum of {len(found.members)} models with different kernels or maps."
        return f"{text} The directions below are those of the first model." if found.shape == ShapeName.FULL else text
    if found.shape == ShapeName.IDENTITY:
        return "The search found that a model of all columns with equal weights is better than a few directions."
    if found.shape == ShapeName.DIAGONAL:
        return "The search found that a model with one weight per column is better than sums of several columns."
    text = "A direction is a weighted sum of the columns. The model predicts each row from " + (
        "the value of this direction alone."
        if found.n_components == 1
        else f"the values of these {found.n_components} directions alone."
    )
    if found.n_components > len(found.directions):
        text += f" The {len(found.directions)} directions that change the prediction most are shown."
    return text


def _direction(direction: Direction, found: Directions) -> str:
    left_out = percent(direction.left_out)
    others = f"{count(direction.n_left_out, 'more column')} with {left_out} of the sum of squared weights."
    weight = ""
    if found.n_components > 1:
        size = direction.singular_value
        relative = "the largest of all directions" if size == 1 else f"{number(size, 2)} times the largest weight"
        weight = (
            f"<p>This direction accounts for {percent(direction.share)} of the changes of the prediction. Its weight "
            f"in the model is {relative}.</p>"
        )
    return (
        f'<p class="formula">{escape(formula(direction))}</p>{weight}'
        "<p class='small'>Each weight is for a change of the column by one standard deviation. Only the relative sizes "
        "and signs of the weights matter; reversing all signs gives the same model.</p>"
        + bars(direction.loadings, True, direction.n_left_out, others)
    )


def link_section(facts: Facts) -> str:
    """Return the section on the learned function."""
    link = facts.link
    learned = "The function of the first model" if facts.directions.of_ensemble else "The learned function"
    dots = "A dot is a row of the data."
    if link.n_held > 0:
        others = "directions" if facts.directions.shape == ShapeName.FULL else "columns"
        dots = (
            "A dot is a row of the data. Its height above or below the function is the row's prediction error. "
            f"The other {others} are fixed at their medians."
        )
    names = [direction_name(facts, each.direction) for each in link.curves]
    curves = "".join(
        figure(curve_chart(each, name, facts.target), f"The function along {name}.")
        for each, name in zip(link.curves, names, strict=True)
    )
    if not link.surfaces:
        return f'<p>{learned} along the direction. {dots}</p><div class="figures one">{curves}</div>'
    maps = "".join(
        figure(
            map_chart(each, [direction_name(facts, k) for k in each.directions], facts.target),
            "Brighter colours are higher values. Colours are pale far from all rows, where the function is unreliable.",
            f' class="flat" data-pair="{i}"',
        )
        for i, each in enumerate(link.surfaces)
    )
    surface = (
        '<div class="surface" id="surface"><noscript><p class="note">The rotating surface needs JavaScript. '
        "The maps show the same function.</p></noscript></div>"
    )
    return (
        f"<p>{learned}, over pairs of directions and along each direction. {dots}</p>"
        f'<div class="tabs" data-tabs="Views of the function">'
        + panel("Surface", surface)
        + panel("Map", f'<div class="figures one">{maps}</div>')
        + panel("Curves", f'<div class="figures">{curves}</div>')
        + "</div>"
    )


def direction_name(facts: Facts, direction: int) -> str:
    """Return the name of a direction: the name of its column if it has a single column, else "direction k"."""
    if facts.directions.shape != ShapeName.FULL:
        for each in facts.directions.directions:
            if each.number == direction and len(each.loadings) == 1:
                return shortened(each.loadings[0].column, 30)
    return f"direction {direction}"
