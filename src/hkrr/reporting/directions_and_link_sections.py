"""What was learned, as the page shows it: the directions, and the function of them."""

from __future__ import annotations

from html import escape

from hkrr.reporting.directions import Direction, Directions, Loading
from hkrr.reporting.facts import Facts
from hkrr.reporting.markup import bars, figure, panel
from hkrr.reporting.pictures import curve, flat_map
from hkrr.reporting.words import count, formula, number, percent, shortened


def directions_section(facts: Facts) -> str:
    """Return what the target depends on."""
    found = facts.directions
    parts = [f"<p>{escape(_about_directions(found))}</p>"]
    others = f"And {count(found.n_columns_left_out, 'column')} that matter less."
    panels = [
        panel(
            "Columns",
            "<p>How far the prediction moves with a typical move of each column, as a share of all.</p>"
            + bars(found.importances, False, found.n_columns_left_out, others),
        )
    ]
    if found.shape == "full":
        panels += [panel(f"Direction {each.number}", _direction(each, found)) for each in found.directions]
    if found.shape == "full" and len(found.directions) > 1:
        shares = [Loading(f"Direction {each.number}", each.share) for each in found.directions]
        panels.insert(
            1,
            panel(
                "Directions",
                "<p>How far the prediction moves with a typical move along each direction, as a share of all.</p>"
                + bars(shares, signed=False),
            ),
        )
    parts.append(f'<div class="tabs" data-tabs="Columns and directions">{"".join(panels)}</div>')
    return "".join(parts)


def _about_directions(found: Directions) -> str:
    if found.shape == "identity":
        return "The search preferred all columns as they are to any few directions of them: there is no map to show."
    if found.shape == "diagonal":
        return "The search preferred a weight for each column to mixtures of them: each direction is one column."
    text = "A direction is a weighted sum of the columns: all that the model knows of a row is where it lies along " + (
        "this one." if found.n_components == 1 else f"these {found.n_components}."
    )
    if found.n_components > len(found.directions):
        text += f" The {len(found.directions)} that move the prediction most are shown."
    return text


def _direction(direction: Direction, found: Directions) -> str:
    others = f"And {count(direction.n_left_out, 'column')} with {percent(direction.left_out)} of the weight."
    weight = ""
    if found.n_components > 1:
        size = direction.singular_value
        beside = "the largest" if size == 1 else f"{number(size, 2)} of the largest"
        weight = (
            f"<p>It makes up {percent(direction.share)} of the moves of the prediction; its weight in the map is "
            f"{beside}.</p>"
        )
    return (
        f'<p class="formula">{escape(formula(direction))}</p>{weight}'
        "<p class='small'>Weights are for a typical move (one standard deviation) of each column; only their relative "
        "sizes and signs mean something, and turning all signs round changes nothing.</p>"
        + bars(direction.loadings, True, direction.n_left_out, others)
    )


def link_section(facts: Facts) -> str:
    """Return how it depends on it."""
    link = facts.link
    several = link.n_held > 0
    dots = (
        "A dot is a row: its height is that of the picture there, plus the row's error."
        if several
        else "A dot is a row of the data."
    )
    held = f" Other {'directions' if facts.directions.shape == 'full' else 'columns'} are held at their medians."
    held = held if several else ""
    names = [direction_name(facts, each.direction) for each in link.curves]
    curves = "".join(
        figure(curve(each, name, facts.target), f"Along {name}.") for each, name in zip(link.curves, names, strict=True)
    )
    if not link.surfaces:
        return (
            f"<p>The function that was learned, along the direction. {dots}{held}</p>"
            f'<div class="figures one">{curves}</div>'
        )
    maps = "".join(
        figure(
            flat_map(each, [direction_name(facts, k) for k in each.directions], facts.target),
            "Brighter is higher; pale where no rows are near, and the function is a guess.",
            f' class="flat" data-pair="{i}"',
        )
        for i, each in enumerate(link.surfaces)
    )
    turning = (
        '<div class="surface" id="surface"><noscript><p class="note">A surface that can be turned needs JavaScript; '
        "the maps show the same.</p></noscript></div>"
    )
    return (
        f"<p>The function that was learned, over pairs of directions and along each. {dots}{held}</p>"
        f'<div class="tabs" data-tabs="Pictures of the function">'
        + panel("Surface", turning)
        + panel("Map", f'<div class="figures one">{maps}</div>')
        + panel("Curves", f'<div class="figures">{curves}</div>')
        + "</div>"
    )


def direction_name(facts: Facts, direction: int) -> str:
    """Return the name of a direction; where it is a single column, that column's."""
    if facts.directions.shape != "full":
        for each in facts.directions.directions:
            if each.number == direction and len(each.loadings) == 1:
                return shortened(each.loadings[0].column, 30)
    return f"direction {direction}"
