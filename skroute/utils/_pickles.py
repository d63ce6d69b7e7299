"""Pickles that carry the version of skroute that wrote them."""

import skroute
from skroute.utils._validation import warn

# Key of the version in the state of a pickled estimator.
_VERSION = "_skroute_version"


class VersionedPickleMixin:
    """Mixin for estimators whose pickles carry a version, as scikit-learn's own do.

    If a pickle of another version is loaded, a warning has both versions. A pickle
    without a version was written before 0.1.0, when fitted estimators had other
    attributes: a ValueError is raised.
    """

    def __getstate__(self):
        """Return the state with the version of skroute."""
        return super().__getstate__() | {_VERSION: skroute.__version__}

    def __setstate__(self, state):
        """Set the state of a pickle, and compare its version with this one."""
        state = dict(state)
        # Version that wrote the pickle. None: before 0.1.0.
        written_by = state.pop(_VERSION, None)
        name = type(self).__name__
        if written_by is None:
            raise ValueError(
                f"This pickle of {name} has no version of skroute: it was written "
                f"before 0.1.0, and skroute {skroute.__version__} cannot load it. Fit "
                "the estimator again."
            )
        if written_by != skroute.__version__:
            warn(
                f"This pickle of {name} was written by skroute {written_by}, and is "
                f"loaded by {skroute.__version__}. Its answers may differ. Fit the "
                f"estimator again, or load it with skroute {written_by}."
            )
        super().__setstate__(state)
