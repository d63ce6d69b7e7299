r"""Formulas as MathML, which browsers draw themselves: no script, no network, no LaTeX.

LaTeX is translated by latex2mathml. What it does not know it passes through as text, so a command
left in its output is a warning, and warnings are errors.
"""

import re

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.util import logging

LEFT = re.compile(r"\\[a-zA-Z]+")
# An operator of two words, which the translator takes for two.
WRITTEN = {r"\arg\max": r"\mathrm{arg\,max}", r"\arg\min": r"\mathrm{arg\,min}"}


def translate(latex, display):
    """MathML of a formula, and the LaTeX commands that were not understood."""
    for command, spelled in WRITTEN.items():
        latex = latex.replace(command, spelled)
    markup = convert(latex, display=display)
    return markup, LEFT.findall(re.sub(r"<[^>]*>", "", markup))


def _visit(display):
    def visit(translator, node):
        try:
            markup, left = translate(node.astext(), display)
        except (
            Exception
        ) as error:  # whatever the parser raises, with the place of the formula
            markup, left = "", [repr(error)]
        if left:
            message = "formula not understood: %s in %r"
            logging.getLogger(__name__).warning(
                message, left, node.astext(), location=node
            )
        tag = "div" if display == "block" else "span"
        translator.body.append(f'<{tag} class="math">{markup}</{tag}>')
        raise nodes.SkipNode

    return visit


def setup(app):
    app.add_html_math_renderer(
        "mathml", (_visit("inline"), None), (_visit("block"), None)
    )
    return {"parallel_read_safe": True}
