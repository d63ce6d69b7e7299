"""What a certified router is used for beside single predictions: batches, streams, monitors."""

from copy import copy

import numpy as np
from sklearn.base import is_classifier, is_regressor
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.validation import check_is_fitted

from skroute.base import check_budget, check_rows
from skroute.certified._batch import answer_batch, check_batch, check_enough, check_price
from skroute.certified._candidates import is_billed, is_frozen, unfrozen
from skroute.certified._losses import column_names, measure_of, of_path
from skroute.certified._monitor import ChoicePromise, PromiseMonitor
from skroute.metrics._curve import sample_quality
from skroute.utils._compat import check_sample_weight, num_samples
from skroute.utils._handing import answered
from skroute.utils._tensors import on_host


class CertifiedUses:
    """Mixin of :class:`CertifiedRouter`."""

    @property
    def abstain_quality_(self):
        """What a row counts as that a candidate hands over; the least of them, None if none."""
        check_is_fitted(self)
        found = [getattr(model, "abstain_quality_", None) for model in self.estimators_]
        return min((worth for worth in found if worth is not None), default=None)

    def certify_batch(self, X, *, n_labels=100, label_cost=None, **context):
        """Answer a batch of known rows, with a promise about these rows.

        The reference's answers are bought for `n_labels` of the rows, drawn at random without
        replacement, and used. The rest is answered at the cheapest operating point of the path
        that these labels vouch for: with probability `confidence` over the draw the mean loss
        of the finished batch against the reference's answers, which are the truth here, is at
        most `max_loss`. Where losses are 0 and 1 the test is exact
        (:func:`~skroute.guarantees.finite_population_test` has the proof). No target is needed,
        and around a :class:`~sklearn.frozen.FrozenEstimator` no `fit` either.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            All rows of the batch.

        n_labels : int, default=100
            The label budget: for so many rows the reference is asked. 100 to 150 are about best
            where a tenth of the rows may differ; ``ceil(1 / max_loss)`` is far too few.

        label_cost : float, default=None
            What an answer of the reference costs. None takes the price that is known: of a
            member, or of the estimator without a budget.

        **context : keyword arguments
            What the wrapped estimators are told about these rows, as in a call.

        Returns
        -------
        CertifiedBatch
            Named tuple ``(y_pred, route, cost, labelled, certificate)``. Its costs count the
            labels and what was tried on them.

        Raises
        ------
        ValueError
            If so few labels can promise nothing, before any is bought; if these labels do not
            vouch even for the safe end of the path, with what they can promise; or if the
            batch costs more than `budget`. `fallback` plays no part: the safe way is then to
            ask the reference about every row, which the caller decides.

        Notes
        -----
        `reference` is ``"full"``, the name of a member, or a fitted estimator, such as a person
        behind a `predict`; ``"best"`` cannot be known without labels. `max_loss` is the share of
        the rows whose answers may differ, or with `loss` the mean of ``loss(bought, answer)``.
        Of a router that measures labels or numbers by its own `quality` it is the mean of what
        an answer loses beside the bought one, by that quality.
        Members are asked once about a labelled row, for all operating points together.
        Ten rows more set the scale of the budgets. Where deciding itself asks members, as
        FrugalMCT and Sequential do, these ten are asked beside what `cost` says.

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> from sklearn.frozen import FrozenEstimator
        >>> from sklearn.naive_bayes import GaussianNB
        >>> from sklearn.svm import SVC
        >>> from skroute.certified import CertifiedRouter
        >>> from skroute.routing import OccamRouterClassifier
        >>> X, y = load_digits(return_X_y=True)
        >>> members = [("bayes", GaussianNB()), ("svm", SVC())]
        >>> router = OccamRouterClassifier(members, costs=[1, 10])
        >>> frozen = FrozenEstimator(router.fit(X[:800], y[:800]))
        >>> certified = CertifiedRouter(frozen, max_loss=0.1, reference="svm", random_state=0)
        >>> batch = certified.certify_batch(X[800:], n_labels=100)
        >>> print(batch.certificate)
        With a confidence of 0.95, the mean loss against svm on this batch of 997 rows is at ...
        >>> bool((batch.y_pred != router.named_estimators_["svm"].predict(X[800:])).mean() <= 0.1)
        True
        """
        self._validate_params()
        names, models = self._asked()
        if not all(map(is_frozen, models)):
            check_is_fitted(self)
        paths = [unfrozen(model) for model in models]
        for path in paths:
            check_is_fitted(path)
        if any(getattr(path, "abstain_quality_", None) is not None for path in paths):
            raise ValueError(
                "certify_batch compares answers with bought ones, and a row that is handed over "
                "has none: fit the estimator without an abstain_cost."
            )
        X = check_rows(self, X, reset=False) if hasattr(self, "choices_") else X
        said = self._said(context)
        measure = measure_of(names, paths, None, self.loss, self.loss_range)
        if self.budget is not None and np.isfinite(self.budget) and any(map(is_billed, paths)):
            raise ValueError(
                f"budget={self.budget!r} cannot be held: what calls of the wrapped router cost is "
                "known only after them. Leave it out; max_loss is promised without it."
            )
        test = check_batch(self, num_samples(X), n_labels, label_cost, len(names), measure)
        check_price(paths, self.reference, label_cost)
        check_enough(test)
        return answer_batch(
            paths,
            names,
            [said[name] for name in names],
            X,
            test=test,
            reference=self.reference,
            label_cost=label_cost,
            n_points=self.n_points,
            budget=check_budget(self.budget),
            confidence=float(self.confidence),
            rng=check_random_state(self.random_state),
        )

    def score(self, X, y, sample_weight=None, budget=None, **context):
        """How good the answers are, by what the wrapped estimators answer.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            The rows.

        y : array-like of shape (n_samples,) or (n_samples, n_choices)
            True labels, true numbers, or the quality of each choice; a frame of that is read by
            name.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights.

        budget : float, default=None
            As in `predict_routed`.

        **context : keyword arguments
            As in `predict_routed`.

        Returns
        -------
        float
            Accuracy of labels (of several, the mean of labels in common by labels in either), R2
            of numbers, or the mean quality of the choices made. Rows that are handed over are
            left out, as by the wrapped estimator; logged qualities count them.
        """
        check_is_fitted(self)
        if self.abstain_quality_ is not None and np.ndim(y) < 2:
            return self._score_answered(X, y, sample_weight, budget, context)
        if is_regressor(self.estimators_[0]):
            y_pred = self.predict(X, budget=budget, **context)
            return float(r2_score(y, y_pred, sample_weight=sample_weight))
        if is_classifier(self.estimators_[0]) and np.ndim(y) == 2 and np.shape(y)[1] > 1:
            y_pred = self.predict(X, budget=budget, **context)
            y = y.toarray() if hasattr(y, "toarray") else on_host(y)
            quality = sample_quality(y, y_pred)
            return float(np.average(quality, weights=check_sample_weight(sample_weight, X)))
        if is_classifier(self.estimators_[0]) or np.ndim(y) < 2:
            return super().score(X, y, sample_weight, budget=budget, **context)
        route = self.route(X, budget=budget, **context)
        # All rows are those of one path.
        owner = int(np.searchsorted(self._offsets, route[0], side="right")) - 1
        path = self.estimators_[owner]
        quality = of_path(np.asarray(y, dtype=np.float64), column_names(y), path)
        if quality.shape != (len(route), len(path.choices_)):
            raise ValueError(
                f"y must have one column of quality per choice, of shape ({len(route)}, "
                f"{len(path.choices_)}), got {quality.shape}."
            )
        realised = quality[np.arange(len(route)), route - self._offsets[owner]]
        return float(np.average(realised, weights=check_sample_weight(sample_weight, X)))

    def _score_answered(self, X, y, sample_weight, budget, context):
        """`score` over the rows that are not handed over."""
        check_consistent_length(X, y)
        routed = self.predict_routed(X, budget=budget, **context)
        rows = answered(self, routed.route)
        if not len(rows):
            return np.nan
        weight = check_sample_weight(sample_weight, X)
        answers = np.array(routed.y_pred[rows].tolist())
        score = r2_score if is_regressor(self.estimators_[0]) else accuracy_score
        weight = None if weight is None else weight[rows]
        return float(score(np.asarray(on_host(y))[rows], answers, sample_weight=weight))

    def set_params(self, **params):
        """Set parameters, as of any estimator; prices have a method of their own.

        Parameters
        ----------
        **params : dict
            Parameters and their values.

        Returns
        -------
        self
        """
        if "costs" in params:
            raise ValueError(
                "costs is no parameter of CertifiedRouter: after fit set_costs(costs) derives the "
                "certificate for other prices, and before it they are the wrapped estimator's, "
                "as in set_params(estimator__costs=costs)."
            )
        return super().set_params(**params)

    def stream(
        self,
        budget_total,
        *,
        max_costs=None,
        ledger=None,
        purse="stream",
        within=(),
        period=None,
        rollover=False,
    ):
        """A thread-safe cap on a total, for requests one by one at the certified point.

        Parameters
        ----------
        budget_total : float
            Hard cap on the sum of all costs.

        max_costs : mapping from str to float or array-like of shape (n_choices,), default=None
            The most that a call of each choice can cost, as in the wrapped router's `stream`.

        ledger, purse, within, period, rollover
            Where the books are kept, what they are called, and when they begin anew, as in the
            wrapped router's `stream`.

        Returns
        -------
        skroute.routing.BudgetStream
            Every request is decided as `route` does it, at the operating point of now, and what
            is certified holds while the total lasts. A request that finds too little of it left
            gets a cheaper choice or none, and about such requests nothing is promised; nor while
            it excludes choices. Its choices are named as the wrapped router names them.
        """
        check_is_fitted(self)
        k = self._selection.point(check_budget(self.budget))
        evidence = self._selection.evidence
        model = copy(self.estimators_[int(evidence.path[k])])
        if not hasattr(model, "stream"):
            raise ValueError(f"{type(model).__name__} has no streams: it decides row by row.")
        model.budget = float(evidence.budget[k])
        made = model.stream(
            budget_total,
            max_costs=max_costs,
            ledger=ledger,
            purse=purse,
            within=within,
            period=period,
            rollover=rollover,
        )
        if (single := int(evidence.single[k])) >= 0:
            made.exclude([name for j, name in enumerate(model.choices_) if j != single])
        return made

    def monitor(self, *, audit_rate=0.02, false_alarm=0.05, random_state=None):
        """A monitor of what was promised, which names the choice that an alarm is about.

        Beside the promises of the certificate it watches cost and loss of each choice on the
        rows that it answers, against upper bounds from the evidence rows that hold together
        with the same confidence.

        Parameters
        ----------
        audit_rate, false_alarm, random_state
            As in :class:`PromiseMonitor`.

        Returns
        -------
        PromiseMonitor
            To be fed with costs, losses and routes.
        """
        check_is_fitted(self)
        budget, loss_range = check_budget(self.budget), self._selection.asked.loss_range
        certificate = self._selection.certificate(budget)
        if not certificate.promised:
            raise ValueError("There is nothing to watch: the certificate promises nothing.")
        max_loss = certificate.max_loss
        watched = max_loss is not None and max_loss < loss_range
        of_choices = self._selection.of_choices(budget, self.choices_)
        most = self._selection.cost_range()[1]
        # A budget above all that was seen is broken by costs that were not.
        beyond = certificate.budget is not None and certificate.budget >= most
        return PromiseMonitor(
            max_loss=max_loss if watched else None,
            budget=certificate.budget,
            loss_range=loss_range,
            max_cost=None if beyond else most * (1 + 1e-9),
            audit_rate=audit_rate,
            false_alarm=false_alarm,
            choices={name: of_choices.get(name, ChoicePromise()) for name in self.choices_},
            random_state=random_state,
        )
