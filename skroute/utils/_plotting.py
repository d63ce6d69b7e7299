"""Colours, legends and labels that all displays share."""

import math

from skroute.utils._optional import import_optional

# Colours of choices, in their order. Twelve that differ on a light and on a dark
# background: those of P. Tol's "bright" and "vibrant" schemes, and four in between.
COLOURS = (
    "#4477aa",  # blue
    "#ee7733",  # orange
    "#228833",  # green
    "#cc3311",  # red
    "#aa3377",  # purple
    "#33bbee",  # cyan
    "#ccbb44",  # yellow
    "#ff8fb0",  # pink
    "#8c6d31",  # brown
    "#66dd88",  # light green
    "#6a5acd",  # indigo
    "#009988",  # teal
)
# Colour of references, such as the random mix, on a light and on a dark background.
REFERENCE_COLOUR = "0.5"
# Largest number of entries of a legend inside the axes, in a wide and in a narrow
# figure. A longer one hides the data.
_MAX_INSIDE = 4
_MAX_INSIDE_NARROW = 2
# Width of a figure in inches below which a long legend stands below the axes. To the
# right of them it would take half of the figure.
_NARROW = 5.0
# Distance in inches between the axes and a legend to the right of them.
_GAP_RIGHT = 0.1
# Distance in inches between the axes and a legend below: tick labels and axis label.
_GAP_BELOW = 0.45
# Height in inches that axes keep above a legend, with their labels and their title.
_AXES_HEIGHT = 2.7
# Height in inches of a line of a legend.
_LINE_HEIGHT = 0.18
# Maximal number of columns of a legend below the axes.
_MAX_COLUMNS = 2
# Widths in inches of a small letter of a legend, and of a handle with its margins.
_LETTER_WIDTH = 0.075
_HANDLE_WIDTH = 0.5


def colours_of(names):
    """Return the colour of each choice, by its position among all choices.

    Parameters
    ----------
    names : sequence of str
        All choices of an estimator, in the order of ``choices_``.

    Returns
    -------
    list of str or of tuple
        More than twelve choices have colours from one colour map.
    """
    n_names = len(names)
    if n_names <= len(COLOURS):
        return list(COLOURS[:n_names])
    colour_map = import_optional("matplotlib", "a display").colormaps["turbo"]
    # The ends of the map are too dark to be told apart.
    first, last = 0.05, 0.95
    step = (last - first) / (n_names - 1)
    return [colour_map(first + step * position) for position in range(n_names)]


def foreground_colour():
    """Return the colour of text: black, or white on a dark background."""
    return import_optional("matplotlib", "a display").rcParams["text.color"]


def draw_legend(ax, handles=None):
    """Draw a legend where it hides no data, of everything that has a label.

    Parameters
    ----------
    ax : matplotlib Axes
    handles : list of matplotlib Artist, default=None
        What the legend shows. None takes everything in the axes that has a label.
    """
    if handles is None:
        handles, _ = ax.get_legend_handles_labels()
    if not handles:
        return
    is_narrow = ax.figure.get_figwidth() < _NARROW
    max_inside = _MAX_INSIDE_NARROW if is_narrow else _MAX_INSIDE
    if len(handles) <= max_inside:
        ax.legend(handles=handles, loc="best")
        return
    draw_legend_outside(ax, handles)


def draw_legend_outside(ax, handles):
    """Draw a legend to the right of the axes, or below them in a narrow figure.

    Parameters
    ----------
    ax : matplotlib Axes
    handles : list of matplotlib Artist
    """
    transforms = import_optional("matplotlib.transforms", "a display")
    figure = ax.figure
    if figure.get_figwidth() < _NARROW:
        # The distance is in inches, so that it fits the axis label at any size.
        n_columns = _number_of_columns(figure.get_figwidth(), handles)
        _make_place_below(figure, n_lines=math.ceil(len(handles) / n_columns))
        shift = transforms.ScaledTranslation(0, -_GAP_BELOW, figure.dpi_scale_trans)
        ax.legend(
            handles=handles,
            loc="upper center",
            bbox_to_anchor=(0.5, 0.0),
            bbox_transform=ax.transAxes + shift,
            ncols=n_columns,
            fontsize="small",
            frameon=False,
        )
        return
    shift = transforms.ScaledTranslation(_GAP_RIGHT, 0, figure.dpi_scale_trans)
    ax.legend(
        handles=handles,
        loc="center left",
        bbox_to_anchor=(1.0, 0.5),
        bbox_transform=ax.transAxes + shift,
        fontsize="small",
        frameon=False,
    )


def _number_of_columns(width, handles):
    """Return how many columns of a legend fit into a width in inches, at least one."""
    n_letters = max(len(str(handle.get_label())) for handle in handles)
    column_width = _HANDLE_WIDTH + _LETTER_WIDTH * n_letters
    return min(max(int(width // column_width), 1), _MAX_COLUMNS)


def _make_place_below(figure, *, n_lines):
    """Make a figure higher if a legend of `n_lines` leaves too little to the axes.

    Only a figure with a layout and single axes, as displays make it, is changed.
    """
    if figure.get_layout_engine() is None or len(figure.axes) != 1:
        return
    needed = _AXES_HEIGHT + n_lines * _LINE_HEIGHT
    if figure.get_figheight() < needed:
        figure.set_figheight(needed)


def set_title(ax, title):
    """Set the title of axes that have none."""
    if not ax.get_title():
        ax.set_title(title, fontsize="medium")


def cost_label(text, unit):
    """Return the label of an axis of costs, with the unit if there is one."""
    return f"{text} ({unit})" if unit else text
