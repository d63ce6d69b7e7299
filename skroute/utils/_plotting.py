"""Colours, legends and labels that all displays share."""

import math
import textwrap

from skroute.utils._optional import import_optional

# Colours of choices, in their order. The twelve colours differ on a light and on a dark
# background. Eight are from P. Tol's "bright" and "vibrant" schemes, and four are in
# between.
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
# Colours of what is not a choice, such as a second curve. They begin at the end of the
# list, whose colours few routers need for their choices.
LATER_COLOURS = COLOURS[::-1]
# Colour of references, such as the random mix, on a light and on a dark background.
REFERENCE_COLOUR = "0.5"
# Largest number of entries of a legend inside the axes. A longer one hides the data.
_MAX_INSIDE = 4
# Largest number of entries of a legend inside the axes of a figure that is narrower
# than `_NARROW`.
_MAX_INSIDE_NARROW = 2
# In a figure that is narrower than this number of inches, a long legend is drawn below
# the axes. To the right of them it would take half of the figure.
_NARROW = 5.0
# Share of the width of a figure that a legend inside the axes or to the right of them
# may take. A wider one leaves too little to the data.
_MAX_SHARE = 0.5
# Distance in inches between the axes and a legend to the right of them.
_GAP_RIGHT = 0.1
# Distance in inches between the axes and a legend below. The labels of the ticks and of
# the axis are in it.
_GAP_BELOW = 0.45
# Least height in inches of axes with their labels and their title, above a legend.
_AXES_HEIGHT = 2.7
# Height in inches of a line of a legend, and of a line of an axis label.
_LINE_HEIGHT = 0.18
# Maximal number of columns of a legend below the axes.
_MAX_COLUMNS = 2
# Width in inches of a small letter of a legend.
_LETTER_WIDTH = 0.07
# Width in inches of a handle of a legend, with its margins.
_HANDLE_WIDTH = 0.5
# Width of a letter of an axis label or a title, as a share of its font size. Measured
# on the labels of displays.
_LETTER_SHARE = 0.52
# Font sizes are in points. An inch has 72 of them.
_POINTS_PER_INCH = 72


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
    # The ends of the colour map are too dark to be told apart.
    first = 0.05
    last = 0.95
    step = (last - first) / (n_names - 1)
    return [colour_map(first + step * position) for position in range(n_names)]


def foreground_colour():
    """Return the colour of text: black, or white on a dark background."""
    return import_optional("matplotlib", "a display").rcParams["text.color"]


def finish_axes(
    ax,
    *,
    xlabel,
    ylabel,
    title,
    handles=None,
    fills_axes=False,
    height=0.0,
):
    """Write the labels and the title of axes, and draw a legend that hides no data.

    Labels and title are broken into lines that fit the axes.

    Parameters
    ----------
    ax : matplotlib Axes
        All data are drawn.
    xlabel, ylabel : str
    title : str
        Axes that have a title already keep it.
    handles : list of matplotlib Artist, default=None
        What the legend shows. None takes everything in the axes that has a label.
    fills_axes : bool, default=False
        True if the data fill the axes, so that a legend must be outside.
    height : float, default=0
        Least height in inches of the axes with their labels and their title. 0 is no
        limit.
    """
    _make_higher(ax, height)
    ax.set(xlabel=xlabel, ylabel=ylabel)
    set_title(ax, title)
    if handles is None:
        handles, _ = ax.get_legend_handles_labels()
    n_inside = 0 if fills_axes else _MAX_INSIDE
    is_narrow_figure = _width_of(ax.figure) < _NARROW
    if is_narrow_figure:
        n_inside = min(n_inside, _MAX_INSIDE_NARROW)
    legend_labels = [handle.get_label() for handle in handles]
    is_wide_legend = takes_half(ax.figure, legend_labels)
    is_inside = len(handles) <= n_inside and not is_wide_legend
    is_below = not is_inside and (is_narrow_figure or is_wide_legend)
    if handles and is_inside:
        ax.legend(handles=handles, loc="best")
    elif handles and not is_below:
        _draw_legend_right(ax, handles)
    # A legend to the right makes the axes narrower. The labels of the axes are
    # therefore broken into lines after it is drawn.
    _break_labels(ax)
    if handles and is_below:
        # A legend below comes under the last line of the broken x label.
        _draw_legend_below(ax, handles, height=height)


def set_title(ax, title):
    """Set the title of axes that have none."""
    if not ax.get_title():
        ax.set_title(title, fontsize="medium")


def takes_half(figure, names):
    """Return True if a list of names needs more than half of the width of a figure.

    Parameters
    ----------
    figure : matplotlib Figure or SubFigure
    names : list of str
    """
    return list_width(names) > _MAX_SHARE * _width_of(figure)


def _make_higher(ax, height):
    """Make the figure of axes at least as high as `height` in inches.

    Other figures than those of displays are not changed: figures without a layout, and
    figures with several axes.
    """
    figure = _whole_figure(ax)
    # A colour bar has axes of its own in matplotlib. They are not counted.
    n_axes = sum(axes.get_label() != "<colorbar>" for axes in figure.axes)
    if figure.get_layout_engine() is None or n_axes != 1:
        return
    if figure.get_figheight() < height:
        figure.set_figheight(height)


def _whole_figure(ax):
    """Return the figure of axes, which may be in a subfigure of it."""
    # `figure` of a subfigure is the whole figure. `figure` of a figure is itself.
    return ax.figure.figure


def _width_of(figure):
    """Return the width of a figure or subfigure in inches."""
    return figure.bbox.width / figure.dpi


def list_width(names):
    """Return the width in inches of a legend with one column of names."""
    n_letters = max((len(str(name)) for name in names), default=0)
    return _HANDLE_WIDTH + _LETTER_WIDTH * n_letters


def _draw_legend_right(ax, handles):
    """Draw a legend to the right of the axes, half way up."""
    _draw_legend_outside(
        ax,
        handles,
        loc="center left",
        anchor=(1.0, 0.5),
        shift=(_GAP_RIGHT, 0.0),
    )


def _draw_legend_below(ax, handles, *, height):
    """Draw a legend below the label of the horizontal axis.

    A label that is longer than the figure is broken into lines. The figure becomes
    higher if the legend would leave less than `height` in inches to the axes.
    """
    width = _width_of(ax.figure)
    names = [str(handle.get_label()) for handle in handles]
    n_columns = min(max(int(width // list_width(names)), 1), _MAX_COLUMNS)
    n_letters = max(int((width - _HANDLE_WIDTH) / _LETTER_WIDTH), 1)
    labels = [textwrap.fill(name, n_letters) for name in names]
    n_label_lines = sum(label.count("\n") + 1 for label in labels)
    # Lines of the label of the horizontal axis, without the first one.
    n_more_lines = ax.get_xlabel().count("\n")
    gap = _GAP_BELOW + n_more_lines * _LINE_HEIGHT
    n_lines = math.ceil(n_label_lines / n_columns) + n_more_lines
    _make_higher(ax, max(height, _AXES_HEIGHT) + n_lines * _LINE_HEIGHT)
    _draw_legend_outside(
        ax,
        handles,
        loc="upper center",
        anchor=(0.5, 0.0),
        shift=(0.0, -gap),
        labels=labels,
        ncols=n_columns,
    )


def _draw_legend_outside(ax, handles, *, loc, anchor, shift, **options):
    """Draw a legend without a frame next to the axes.

    Parameters
    ----------
    ax : matplotlib Axes
    handles : list of matplotlib Artist
    loc : str
        Corner or side of the legend that is at the anchor.
    anchor : tuple of two floats
        A point of the axes, from 0 to 1.
    shift : tuple of two floats
        Distance from the anchor in inches, so that it fits the labels at any size.
    **options : keyword arguments
        Further arguments of matplotlib's ``legend``.
    """
    transforms = import_optional("matplotlib.transforms", "a display")
    translation = transforms.ScaledTranslation(*shift, ax.figure.dpi_scale_trans)
    ax.legend(
        handles=handles,
        loc=loc,
        bbox_to_anchor=anchor,
        bbox_transform=ax.transAxes + translation,
        fontsize="small",
        frameon=False,
        **options,
    )


def _break_labels(ax):
    """Break the labels and the title of axes into lines, in place."""
    figure = _whole_figure(ax)
    layout = figure.get_layout_engine()
    if layout is not None:
        # The axes get the size that labels of ticks and the legend leave to them.
        layout.execute(figure)
    # The size of the axes in inches.
    width, height = ax.bbox.size / figure.dpi
    texts_and_lengths = (
        (ax.xaxis.label, width),
        (ax.yaxis.label, height),
        (ax.title, width),
    )
    for text, length in texts_and_lengths:
        letter_width = _LETTER_SHARE * text.get_fontsize() / _POINTS_PER_INCH
        # Number of letters of the longest line.
        n_letters = max(int(length / letter_width), 1)
        lines = []
        for line in text.get_text().split("\n"):
            if len(line) > n_letters and line.endswith(")"):
                # The unit in parentheses at the end has a line of its own.
                line, _, unit = line.rpartition(" (")
                lines += textwrap.wrap(line, n_letters)
                line = "(" + unit
            lines += textwrap.wrap(line, n_letters)
        text.set_text("\n".join(lines))


def cost_label(text, unit):
    """Return the label of an axis of costs, with the unit if there is one."""
    return f"{text} ({unit})" if unit else text
