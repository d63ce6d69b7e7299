"""The parameter `estimator`: what is fitted of it, and what evaluates it member by member.

An engine has `n_members`; `n_outputs`, one for two classes, else one for each; `offset`, the
score before any member; `beta`, above which the full score of one output is the second class;
`rounding`, how close to a tie the library, which adds up in another order or precision, may
answer otherwise (0 for never); `link`, from scores to probabilities, or None; `weights` of the
members; `in_order`, whether they have one order only; `votes`, whether they are averaged or
counted; `forest`, that of trees, else None.

There are two kinds: of trees, and of models that are asked one after another, a net with exits
among them. Rows are those of the ensemble, behind the steps of a pipeline. ``taken(order)`` is the
engine of these members in this order, ``scores(X)`` what each member adds, of shape (n_members,
n_samples, n_outputs), and ``walk(X, thresholds, n_jobs, once)`` evaluates row by row until the
thresholds stop it: scores, numbers of members, and positions of the answers among the classes.
``member_calls()`` has for each member a function of rows, to time it.
"""

from reprlib import repr as short_repr

import numpy as np
from sklearn.base import clone, is_regressor
from sklearn.ensemble import VotingClassifier
from sklearn.utils import get_tags

from skroute.base import note_failure
from skroute.base._inspection import is_frozen, unfrozen
from skroute.early_exit._answers import Link
from skroute.early_exit._model_engines import ExitEngine, MemberEngine, has_exits, may_exit
from skroute.forests import find_reader
from skroute.forests._partial_sums import partial_sums
from skroute.forests._wrapped import take_apart
from skroute.utils._compat import num_samples


def models_of(estimator):
    """What may be fitted of the parameter `estimator`, by name: it, or the members of a list."""
    if isinstance(estimator, (list, tuple)):
        return {f"member_{i}": member for i, member in enumerate(estimator)}
    return {"estimator": estimator}


def check_estimator(estimator):
    """Refuse, before any fit, what is not added up."""
    if not isinstance(estimator, (list, tuple)):
        check_ensemble(unfrozen(estimator))
    elif not len(estimator):
        raise ValueError("estimator is an empty list; give at least one member.")


def fit_models(estimator, X, y, params):
    """The fitted ensemble, or the list of fitted members; ``params(name)`` is for their `fit`."""
    fitted = []
    for name, model in models_of(estimator).items():
        if not is_frozen(model):
            model = clone(model)
            with note_failure(type(model).__name__, num_samples(X), "fit"):
                model.fit(X, y, **params(name))
        fitted.append(unfrozen(model))
    return fitted if isinstance(estimator, (list, tuple)) else fitted[0]


def offers_proba(estimator):
    """Whether what is not fitted yet will know probabilities."""
    if isinstance(estimator, (list, tuple)):
        return all(hasattr(member, "predict_proba") for member in estimator)
    return getattr(unfrozen(estimator), "voting", "soft") != "hard"


def takes_nan(model):
    """Whether a pipeline's first step, or an ensemble behind its threshold, reads NaN."""
    ensemble, before, cut = take_apart(model)
    return bool(before) or (cut is not None and get_tags(ensemble).input_tags.allow_nan)


def engine_of(fitted, y=None, known=None):
    """Engine and classes of a fitted ensemble or list of members.

    Classes come from the labels `y`, or are those `known` from an earlier fit, where the ensemble
    does not know its own.
    """
    if isinstance(fitted, (list, tuple)):
        # All that the labels and the members know, sorted.
        found = [getattr(member, "classes_", None) for member in fitted]
        found += [None if y is None else np.unique(y), known]
        found = [classes for classes in found if classes is not None]
        if not found:
            raise ValueError(
                "The members do not know their classes; call fit with labels, or use members "
                "with classes_."
            )
        classes = np.unique(np.concatenate(found))
        return MemberEngine(list(fitted), classes), classes
    engine, classes = ensemble_engine(fitted)
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


def check_ensemble(estimator):
    """Refuse, before any fit, an ensemble that is not known to add up its members' scores.

    Others have members as well (stacking, one against the rest), and combine them otherwise.
    """
    ensemble, _, cut = take_apart(estimator)
    members = isinstance(ensemble, VotingClassifier) or may_exit(ensemble)
    # Boosters say themselves, once they are read, whether they classify.
    classifies = hasattr(type(ensemble), "predict_proba") or not hasattr(ensemble, "fit")
    if (classifies and find_reader(ensemble) is not None) or (members and cut is None):
        return
    if members:
        advice = "A moved threshold is read around ensembles of trees only."
    elif hasattr(ensemble, "fit") and is_regressor(ensemble):
        advice = "It is a regressor, whose answers are not labels: give the classifier."
    else:
        advice = ""
    raise TypeError(
        "estimator must be an ensemble of LightGBM, XGBoost, CatBoost or scikit-learn (boosting, "
        "forests, bagging, AdaBoost, voting) or a Pipeline that ends in one, a net with "
        "exits (MultiExitClassifier), or a list of members with scores, got "
        f"{short_repr(estimator)}. {advice}".rstrip()
    )


def ensemble_engine(estimator):
    """Engine and classes of a fitted ensemble of a library, apart from the steps of a pipeline.

    The classes are None where it does not know its labels (a LightGBM booster).
    """
    estimator, _, cut = take_apart(estimator)
    if has_exits(estimator) and cut is None:
        return ExitEngine(estimator), np.asarray(estimator.classes_)
    reader = find_reader(estimator)
    forest = None if reader is None else reader.read(estimator)
    if forest is not None:
        from skroute.early_exit._forest_engine import ForestEngine

        classes, name = forest.classes, type(estimator).__name__
        if classes is not None and len(classes) < 2 and forest.answer_rule.kind != "mean":
            raise ValueError(
                f"This {name} was fitted to rows of one class, which is its answer to every row: "
                "nothing is to be evaluated."
            )
        return ForestEngine(partial_sums(forest.with_cut(cut), name)), classes
    if cut is not None:
        raise ValueError(
            "A moved threshold is read around ensembles of trees only, which is not what "
            f"{short_repr(estimator)} is."
        )
    check_ensemble(estimator)
    members = list(estimator.estimators_)
    classes = np.asarray(estimator.classes_)
    weights = getattr(estimator, "weights", None)
    if weights is None:
        weights = np.ones(len(members))
    else:
        kept = [one[1] != "drop" for one in estimator.estimators]
        weights = np.asarray(weights, dtype=np.float64)[kept]
    rounding = 16 * np.finfo(np.float64).eps * (np.abs(weights).sum() + 1.0)
    columns = getattr(estimator, "estimators_features_", None)
    if columns is not None and all(
        np.array_equal(c, np.arange(estimator.n_features_in_)) for c in columns
    ):
        columns = None
    n, boosted = len(classes), hasattr(estimator, "estimator_weights_")
    hard = isinstance(estimator, VotingClassifier) and estimator.voting == "hard"
    soft = not (hard or boosted) and all(hasattr(member, "predict_proba") for member in members)
    # Members answer with positions of the classes, but for those of AdaBoost.
    labels, methods = np.arange(n), ["predict_proba" if soft else "predict"] * len(members)
    miss = 0.0
    if boosted:
        weights = estimator.estimator_weights_[: len(members)] / estimator.estimator_weights_.sum()
        weights, labels, miss = weights * (4.0 if n <= 2 else 1.0), classes, -1.0 / max(1, n - 1)
    engine = MemberEngine(members, labels, weights, columns, methods, rounding, miss)
    engine.votes, engine.link = not boosted, None if hard else Link("mean")
    if boosted:
        engine.link = Link("logistic") if n <= 2 else Link("softmax", 1.0 / (n - 1))
    return engine, classes
