"""The keywords of a call, and public methods whose signatures show them."""

import inspect
import types
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

# The keywords of a call that has only a budget.
_NO_KEYWORDS: Mapping[str, Any] = {}


class CallParameter(NamedTuple):
    """A keyword that the calls of a decision estimator take, next to `X` and `budget`.

    A class lists its keywords in ``call_parameters``. Signatures and docstrings of the
    public methods are made from this list, and a keyword that is not in it is refused.

    Attributes
    ----------
    name : str
        The keyword.

    type : str
        Its type, as the docstring shows it.

    description : str
        What it does, as the docstring shows it. Lines end where the docstring's lines
        end.

    Examples
    --------
    >>> from skroute.base import CallParameter
    >>> CallParameter("known", "array-like of bool", "Features that are known.").name
    'known'
    """

    name: str
    type: str
    description: str


class Call(NamedTuple):
    """The budget and the other keywords of one call.

    :meth:`CostAwareMixin.make_call` builds it once from the keywords of a public
    method. It is passed down as one object.

    Attributes
    ----------
    budget : float, default=inf
        Mean cost per sample. Infinity is unlimited.

    keywords : mapping from str to object
        The other keywords of the call, and their values. All of them are listed in the
        ``call_parameters`` of the class. A keyword that is None is left out.

    Examples
    --------
    >>> from skroute.base import Call
    >>> call = Call(budget=0.5, keywords={"known": [[True, False]]})
    >>> call.budget, call.exclude, call.option("known"), call.option("size")
    (0.5, None, [[True, False]], None)
    """

    budget: float = np.inf
    keywords: Mapping[str, Any] = _NO_KEYWORDS

    @property
    def exclude(self) -> Sequence[str] | None:
        """Names of choices that no row gets in this call. None: no such choice."""
        return self.option("exclude")

    @property
    def allowed(self) -> Any:
        """Choices that each row may make, bool (n_samples, n_choices). None: all."""
        return self.option("allowed")

    @property
    def request_id(self) -> Any:
        """Id of each row, (n_samples,). Rows with equal ids are decided alike."""
        return self.option("request_id")

    @property
    def costs(self) -> Any:
        """Cost of each choice for each row, (n_samples, n_choices). None: not given."""
        return self.option("costs")

    def option(self, name: str) -> Any:
        """Return the value of a keyword, or None if the call does not give it.

        Parameters
        ----------
        name : str
            A keyword that is listed in the class's ``call_parameters``.

        Returns
        -------
        object
            The value.
        """
        return self.keywords.get(name)


EXCLUDE = CallParameter(
    "exclude",
    "list of str, default=None",
    """Names of choices that are not made in this call, for example of a model that is
    down. The other choices are priced without them.""",
)
ALLOWED = CallParameter(
    "allowed",
    "array-like of bool of shape (n_samples, n_choices), default=None",
    """Choices that each row may make. Prices are those of all choices.""",
)
REQUEST_ID = CallParameter(
    "request_id",
    "array-like of shape (n_samples,), default=None",
    """Divides rows that are tied at the price. Equal ids are decided alike. None
    divides them by a hash of the row.""",
)

# These lines of a docstring are replaced by the keywords that a class lists in its
# ``call_parameters``.
_PLACEHOLDER = """        **parameters : keyword arguments
            Other keywords of the calls of this class.
"""


def with_parameters(method, parameters):
    """Return a copy of a public method whose signature and docstring name its keywords.

    Parameters
    ----------
    method : function
        A method of `CostAwareMixin` that ends in ``**parameters``.

    parameters : sequence of CallParameter
        The keywords.

    Returns
    -------
    function
    """
    # A new function with the same code, so that the original is not changed.
    copied = types.FunctionType(
        method.__code__,
        method.__globals__,
        method.__name__,
        method.__defaults__,
        method.__closure__,
    )
    copied.__dict__.update(method.__dict__)
    copied.__kwdefaults__ = method.__kwdefaults__
    copied.__annotations__ = dict(method.__annotations__)
    copied.__module__ = method.__module__
    copied.__signature__ = _signature_with(method, parameters)
    copied.__doc__ = _docstring_with(method, parameters)
    return copied


def takes_any_keyword(method):
    """Return True if the signature of a method ends in ``**parameters``."""
    parameters = inspect.signature(method).parameters.values()
    kinds = [parameter.kind for parameter in parameters]
    return inspect.Parameter.VAR_KEYWORD in kinds


def _signature_with(method, parameters):
    """Return the signature of a method with keywords in place of ``**parameters``.

    Parameters
    ----------
    method : function
    parameters : sequence of CallParameter

    Returns
    -------
    inspect.Signature
        Each keyword has the default None.
    """
    signature = inspect.signature(method)
    shown = []
    for parameter in signature.parameters.values():
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            shown.append(parameter)
    for parameter in parameters:
        kind = inspect.Parameter.KEYWORD_ONLY
        shown.append(
            inspect.Parameter(parameter.name, kind, default=None, annotation=Any)
        )
    return signature.replace(parameters=shown)


def _docstring_with(method, parameters):
    """Return a method's docstring with entries of keywords in place of `_PLACEHOLDER`.

    Parameters
    ----------
    method : function
        Its docstring contains `_PLACEHOLDER`.
    parameters : sequence of CallParameter

    Returns
    -------
    str
    """
    entries = []
    for parameter in parameters:
        if method.__name__ == "predict_routed":
            entries.append(_entry(parameter))
        else:
            # The other methods refer to the docstring of `predict_routed`.
            entries.append(
                f"\n        {parameter.name} : {parameter.type}\n"
                "            As in `predict_routed`.\n"
            )
    return method.__doc__.replace("\n" + _PLACEHOLDER, "".join(entries))


def _entry(parameter):
    """Return the lines of a docstring that describe one keyword of a call."""
    lines = [line.strip() for line in parameter.description.splitlines()]
    described = "".join(f"            {line}\n" for line in lines)
    return f"\n        {parameter.name} : {parameter.type}\n{described}"
