"""What is given as `estimator`: one ensemble, or a list of members that is made into one."""

import numpy as np
from sklearn.base import clone
from sklearn.utils import get_tags

from skroute.base import note_failure
from skroute.early_exit._engines import check_ensemble, ensemble_engine
from skroute.early_exit._model_engines import MemberEngine
from skroute.forests._wrapped import take_apart
from skroute.utils._compat import _safe_indexing, num_samples
from skroute.utils._frozen import is_frozen, unfrozen
from skroute.utils._validation import check_weights


def as_ensemble(estimator):
    """The parameter `estimator`, or what was fitted of it, as one of the two kinds."""
    kind = MemberList if isinstance(estimator, (list, tuple)) else OneEnsemble
    return kind(estimator)


class OneEnsemble:
    """An ensemble of a library, or a net with exits.

    Parameters
    ----------
    estimator : object
    """

    is_library = True
    step = "fit ensemble"

    def __init__(self, estimator):
        self.estimator = estimator
        self.models = {"estimator": estimator}
        self.labels = ["estimator"]

    @property
    def takes_nan(self):
        """Whether a pipeline's first step, or an ensemble behind its threshold, reads NaN."""
        parts = [take_apart(model) for model in self.models.values()]
        if any(part.before for part in parts):
            return True
        behind = [part.ensemble for part in parts if part.cut is not None]
        return bool(behind) and all(get_tags(one).input_tags.allow_nan for one in behind)

    @property
    def frozen(self):
        """Whether nothing is to be fitted."""
        return all(is_frozen(model) for model in self.models.values())

    @property
    def offers_proba(self):
        """Whether an ensemble that is not fitted yet will know probabilities."""
        return getattr(unfrozen(self.estimator), "voting", "soft") != "hard"

    def check(self):
        """Refuse, before any fit, what is not added up."""
        check_ensemble(unfrozen(self.estimator))

    def content(self):
        """What is frozen, without its shell."""
        return unfrozen(self.estimator)

    def fitted(self, X, y, params):
        """The fitted ensemble.

        Parameters
        ----------
        X, y
            Training rows.

        params : callable
            Parameters of `fit` by the name of a model.
        """
        return _fitted(self.estimator, X, y, params("estimator"))

    def engine(self, y=None, known=None):
        """Engine and classes of what is fitted.

        Parameters
        ----------
        y : array-like, default=None
            Labels, for ensembles that do not know theirs.

        known : ndarray, default=None
            Classes of an earlier fit.

        Returns
        -------
        engine : Engine
        classes : ndarray of shape (n_classes,)
        """
        engine, classes = ensemble_engine(self.estimator)
        if classes is not None:
            return engine, classes
        n_classes = max(2, engine.n_outputs)
        if y is None:
            return engine, np.arange(n_classes) if known is None else known
        classes = np.unique(y)
        if len(classes) != n_classes:
            raise ValueError(
                f"The booster has {n_classes} classes, y has {len(classes)}: {classes!r}. Give "
                "rows of each class, or use optimize(X)."
            )
        return engine, classes


class MemberList(OneEnsemble):
    """Members whose scores are added.

    Parameters
    ----------
    members : list
    """

    is_library = False
    step = "fit members"

    def __init__(self, members):
        self.members = list(members)
        self.models = {f"member_{i}": member for i, member in enumerate(members)}
        self.labels = [f"member {i}" for i in range(len(members))]

    @property
    def offers_proba(self):
        """Whether members that are not fitted yet will know probabilities."""
        return all(hasattr(member, "predict_proba") for member in self.members)

    def check(self):
        """Refuse an empty list."""
        if not self.members:
            raise ValueError("estimator is an empty list; give at least one member.")

    def content(self):
        """What is frozen, without its shell."""
        return [unfrozen(member) for member in self.members]

    def fitted(self, X, y, params):
        """The fitted members; see :meth:`OneEnsemble.fitted`."""
        return [_fitted(model, X, y, params(name)) for name, model in self.models.items()]

    def engine(self, y=None, known=None):
        """Engine and classes: all that the labels and the members know, sorted."""
        self.check()
        found = [getattr(member, "classes_", None) for member in self.members]
        found += [None if y is None else np.unique(y), known]
        found = [classes for classes in found if classes is not None]
        if not found:
            raise ValueError(
                "The members do not know their classes; call fit with labels, or use members "
                "with classes_."
            )
        classes = np.unique(np.concatenate(found))
        return MemberEngine(self.members, classes), classes


def _fitted(model, X, y, params):
    if is_frozen(model):
        return unfrozen(model)
    model = clone(model)
    with note_failure(type(model).__name__, num_samples(X), "fit"):
        return model.fit(X, y, **params)


def per_row(params, rows, n):
    """Parameters of `fit` for some of `n` rows: those with an entry for each are taken."""
    check_weights(params, n)

    def taken(value):
        each = hasattr(value, "__len__") and not isinstance(value, (str, dict)) and len(value) == n
        return _safe_indexing(value, rows) if each else value

    return {name: taken(value) for name, value in params.items()}
