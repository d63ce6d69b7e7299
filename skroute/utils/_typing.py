"""Array types for annotations. `help` prints their names, not their expansion."""

import types
from typing import TYPE_CHECKING

__all__ = ["ArrayLike", "NDArray"]

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray
else:

    class ArrayLike:
        """Stand-in for ``numpy.typing.ArrayLike``, a union of 600 characters."""

    class NDArray:
        """Stand-in for ``numpy.typing.NDArray``."""

        def __class_getitem__(cls, scalar_type):
            return types.GenericAlias(cls, (scalar_type,))

    # Signatures print a class with its module, unless the module is that of the
    # built-in types.
    ArrayLike.__module__ = "builtins"
    NDArray.__module__ = "builtins"
