"""OCCAM: which member answers, per query; the same for labels and for numbers."""

import numpy as np
from sklearn.base import clone
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils.validation import check_is_fitted

from skroute.assignment._decide import check_policy
from skroute.base import check_affordable, check_budget, note_failure
from skroute.metrics._objectives import means_of
from skroute.routing._abstaining import ABSTAIN_COST, ABSTAIN_NAME, quality_of_handing, with_handed
from skroute.routing._base import BaseRouter
from skroute.routing._calibrated import PROPER, calibrate
from skroute.routing._draws import tie_draws
from skroute.routing._embedding import call_with_layer, check_layer, reads_tensors
from skroute.routing._fit_warnings import warn_of_fit
from skroute.routing._limits import limits_of
from skroute.routing._priced import fit_policy
from skroute.routing._priced_views import LoggedMixin, check_lambda
from skroute.routing._qualities import EXCHANGE_RATE, QualityMixin
from skroute.routing._ratio_policy import fit_ratio
from skroute.routing._stream import Look, Trade
from skroute.routing._values import check_default_reads, default_quality_estimator, folds_of
from skroute.utils._compat import HasMethods, Interval, Real, StrOptions, num_samples
from skroute.utils._once import once_of
from skroute.utils._timing import seconds_per_sample

# Rows whose layer is held at once when deciding: one row of a convolution can be a megabyte.
_BLOCK = 1024


class BaseOccam(LoggedMixin, QualityMixin, BaseRouter):
    """Members whose quality is estimated for each row; the best at the price answers."""

    _acts_at_once = ("budget", "policy", "reg_lambda", "costs", "exchange_rate")
    _call_context = ("exclude", "allowed", "request_id")
    _parameter_constraints: dict = {
        **BaseRouter._parameter_constraints,
        "exchange_rate": EXCHANGE_RATE,
        "cv": ["cv_object"],
        "quality_estimator": [HasMethods(["fit", "predict"]), None],
        "reg_lambda": [Interval(Real, 0, None, closed="left")],
        "policy": [StrOptions({"online", "batch"})],
        "abstain_cost": ABSTAIN_COST,
        "routing_cost": [Interval(Real, 0, None, closed="left"), None],
    }

    def _asks_member(self, name):
        # Of the member that embeds both are needed: what it says, and what it answers.
        return "both" if name == self._named_embedding()[0] else self._asks()

    def _named_embedding(self):
        """The name of the member that embeds and of its layer; None where there is none."""
        if isinstance(self.embedding, tuple):
            return self.embedding
        return (self.embedding if isinstance(self.embedding, str) else None), None

    def _check(self, X, members):
        super()._check(X, members)
        check_policy(self.policy, "mean")
        if isinstance(self.embedding, (str, tuple)):
            pair = self.embedding if isinstance(self.embedding, tuple) else (self.embedding, "")
            if len(pair) != 2 or pair[0] not in members or not isinstance(pair[1], str):
                raise ValueError(
                    f"embedding={self.embedding!r} is not the name of a member, or of a member "
                    f"and a layer of it; the members are {list(members)!r}. It may also be a "
                    "transformer or None."
                )
            name, layer = self._named_embedding()
            if not hasattr(members[name], "predict_proba"):
                raise ValueError(
                    f"embedding={self.embedding!r} needs predict_proba, which that member "
                    f"({members[name]!r}) does not have."
                )
            if layer is not None:
                check_layer(name, members[name], layer)
        if self.embedding is None and self.quality_estimator is None:
            check_default_reads(
                X,
                "Give the name of a member or a transformer as embedding, or an "
                "quality_estimator that reads such rows.",
            )

    def _split_costs(self, costs, names, embedder, answered=None):
        """What every row pays whoever answers, and what choosing each member adds."""
        deciding, added = float(self.routing_cost or 0.0), np.array(costs, dtype=np.float64)
        if embedder is not None:
            at = names.index(embedder)
            deciding += added[at]
            # It is asked once, unless its answers are not what its probabilities say.
            if self._answered if answered is None else answered:
                added[at] = 0.0
        return deciding, added

    def _least_cost(self, costs, names):
        embedder, _ = self._named_embedding()
        deciding, added = self._split_costs(costs, names, embedder, answered=True)
        return deciding + (float(added.min()) if self.abstain_cost is None else 0.0)

    def _learn(self, X, target, answers):
        names, responses = answers.names, list(answers.responses)
        self.embedding_, self._embedder = None, None
        features = X
        embedder, layer = self._named_embedding()
        if embedder is not None:
            at = names.index(embedder)
            proba, labels = responses[at][:, :-1], responses[at][:, -1].astype(np.int64)
            self._embedder = (names[at], self.estimators_[at])
            self._answered = bool((proba.argmax(axis=1) == labels).all())
            responses[at] = labels if self._asks() == "predict" else proba
            features = proba
            if layer is not None:
                # A layer of a frozen net, which has not seen the rows. One row alone first:
                # where rows are not the first axis of the layer, it gives another number.
                self._embed(_safe_indexing(X, [0]))
                features = self._embed(X)[0]
        elif self.embedding is not None:
            self.embedding_ = clone(self.embedding)
            with note_failure("embedding", num_samples(X), "fit"):
                features = self.embedding_.fit_transform(X, self._target.labels(target))
        self._calibrators, self.calibration_ = {}, {}
        if isinstance(self.quality, str) and self.quality in PROPER:
            found = [calibrate(part, target, answers.folds, answers.weight) for part in responses]
            responses = [one.proba for one in found]
            self._calibrators = {name: one.model for name, one in zip(names, found)}
            self.calibration_ = {name: one.method for name, one in zip(names, found)}
        quality = self._objective().bound(target, answers.weight).table(target, responses)
        deciding, added = self._split_costs(self._costs_of_fit, names, embedder)
        self.abstain_quality_ = None
        if not self._objective().ratio:
            self.abstain_quality_ = quality_of_handing(quality, self.abstain_cost)
        least = float(with_handed(added, self.abstain_quality_).min())
        check_affordable(check_budget(self.budget), deciding + least)
        handing = {} if self.abstain_quality_ is None else {"handed": self.abstain_quality_}
        estimator = self.quality_estimator
        policy = (fit_ratio if self._objective().ratio else fit_policy)(
            default_quality_estimator() if estimator is None else estimator,
            features,
            quality,
            added,
            folds=folds_of(answers.folds, features),
            task=None,
            exchangeable=isinstance(answers.folds, int),
            reg_lambda=self.reg_lambda,
            deciding=deciding,
            n_jobs=self.n_jobs,
            weight=answers.weight,
            **handing,
        )
        self._routing_seconds = 0.0
        if isinstance(self.costs, str) and self.routing_cost is None:
            # A member that embeds is charged as a member: its rows are embedded already.
            rows = X if self._embedder is None else features
            self._routing_seconds = seconds_per_sample(self._timed_decision(policy), rows)
            policy = policy.solved(self.reg_lambda, deciding=deciding + self._routing_seconds)
        policy = policy.solved(self.reg_lambda, rates=self._rates())
        budget = check_budget(self.budget)
        now = policy.at_budget(budget)
        check_affordable(budget, now.least)
        self._priced, self._means = policy, means_of(quality, answers.weight)
        self._measured = isinstance(self.costs, str)
        if self.abstain_quality_ is not None:
            self._means = np.append(self._means, self.abstain_quality_)
        self.choices_ = list(names) + ([] if self.abstain_quality_ is None else [ABSTAIN_NAME])
        warn_of_fit(now, self.choices_, budget)

    def _timed_decision(self, policy):
        def decide(rows):
            features = rows if self.embedding_ is None else self.embedding_.transform(rows)
            now = policy.at_budget(np.inf)
            now.decide(now.values(features), now.planned, np.inf, policy="online")

        return decide

    @property
    def routing_cost_(self):
        """What each row pays before its member is known: deciding, and who embeds it."""
        return self._policy().deciding

    @property
    def costs_(self):
        """Cost of each member's call, 0 for handing over, ndarray of shape (n_choices,)."""
        return with_handed(self._now(), self.abstain_quality_)

    @costs_.setter
    def costs_(self, costs):
        self._costs_of_fit = costs

    def _now(self):
        """The cost of every member of `fit`, by the constructor's `costs` of now."""
        if not isinstance(self.costs, str):
            return self._costs_of(self.member_names_)
        if self._measured:
            return self._costs_of_fit
        raise ValueError(
            f"costs={self.costs!r} was set after fit, which measures them: fit again, or give "
            "the costs."
        )

    @property
    def mean_quality_(self):
        """Mean out-of-sample quality of each member, ndarray of shape (n_choices,)."""
        check_is_fitted(self)
        return self._means

    def _policy(self):
        check_is_fitted(self)
        return self._policy_at(self._effective_budget(None))

    def _policy_at(self, budget):
        embedder = self._embedder and self._embedder[0]
        deciding, added = self._split_costs(self._now(), self.member_names_, embedder)
        if isinstance(self.costs, str):
            deciding += self._routing_seconds
        check_lambda(self.reg_lambda)
        added = with_handed(added, self.abstain_quality_)
        policy = self._priced.solved(self.reg_lambda, added, deciding, self._rates())
        return policy.at_budget(budget)

    def _not_plain(self):
        """Why the policy is more than estimates and a price for each budget; None if not."""
        if self._objective().ratio:
            return "a quality that is a ratio of sums, whose estimates differ by budget"
        if self.abstain_quality_ is not None:
            return "an abstain_cost"
        return "an exchange rate" if any(self._rates()) else None

    def _embed(self, X):
        """What the accuracy estimator sees, and the probabilities that came with it."""
        if self._embedder is not None:
            name, member = self._embedder

            def call(rows):
                once_of(self).count(name, num_samples(rows))
                return self._target.call("predict_proba", name, member, rows)

            if (layer := self._named_embedding()[1]) is not None:
                as_tensor = reads_tensors(self.quality_estimator)
                return call_with_layer(name, member, layer, call, X, as_tensor=as_tensor)[::-1]
            proba = call(X)
            return proba, proba
        if self.embedding_ is not None:
            with note_failure("embedding", num_samples(X), "transform"):
                return self.embedding_.transform(X), None
        return X, None

    def _estimates_and_state(self, X, of):
        """What is made of the features of each row, and the answers that came with them."""
        if self._named_embedding()[1] is None:
            features, proba = self._embed(X)
            return of(features), self._state(proba)
        estimates, probas = [], []
        for start in range(0, num_samples(X), _BLOCK):
            stop = min(start + _BLOCK, num_samples(X))
            features, proba = self._embed(_safe_indexing(X, np.arange(start, stop)))
            estimates.append(of(features))
            probas.append(proba)
        if isinstance(estimates[0], tuple):
            found = tuple(map(np.concatenate, zip(*estimates)))
        else:
            found = np.concatenate(estimates)
        return found, self._state(np.concatenate(probas))

    def _plan(self, X, budget, exclude=None, allowed=None, request_id=None):
        limits = limits_of(self.choices_, num_samples(X), exclude, allowed)
        if self._embedder is not None and self._embedder[0] in (exclude or ()):
            raise ValueError(
                f"exclude={exclude!r} names {self._embedder[0]!r}, which embeds every row: without "
                "it nothing can be decided."
            )
        draw = tie_draws(X, request_id)
        policy = self._policy_at(budget).restricted(limits.kept)
        # Before the member that embeds is called.
        check_affordable(budget, policy.least)
        estimates, state = self._estimated(X, policy)
        plan = policy.decide(
            estimates - policy.docked,
            policy.planned,
            budget,
            policy=self.policy,
            draw=draw,
            allowed=limits.allowed,
        )
        return plan._replace(route=limits.kept[plan.route], state=state)

    def _known_answers(self, X):
        return None if self._embedder is None else self._estimated(X, self._policy())[1]

    def _state(self, proba):
        """What the member that embeds has answered already, if that is its answer."""
        if proba is None or not self._answered or self._embedder[0] not in self.choices_:
            return None
        name = self._embedder[0]
        choice = self.choices_.index(name)
        said = (
            self._calibrators[name].predict_proba(proba) if self._calibrators.get(name) else proba
        )
        return {(choice, "predict_proba"): said, (choice, "predict"): proba.argmax(axis=1)}

    def _call_member(self, response, name, member, X):
        found = super()._call_member(response, name, member, X)
        model = self._calibrators.get(name) if response == "predict_proba" else None
        return found if model is None else model.predict_proba(found)

    def _trade(self, budget):
        return Trade(self._policy_at(budget))

    def _look(self, x, trade):
        features, proba = self._embed(x)
        state = self._state(proba)
        answered = {
            choice: self.classes_[answer[0]]
            for (choice, method), answer in (state or {}).items()
            if method == "predict"
        }
        return Look(features, answered, state)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        if self.embedding is None:
            # The default accuracy estimator reads X itself.
            reader = self.quality_estimator
            known = hasattr(reader, "__sklearn_tags__")
            reader_tags = get_tags(reader).input_tags if known else None
            tags.input_tags.sparse &= reader_tags is not None and reader_tags.sparse
            tags.input_tags.allow_nan &= reader_tags is not None and reader_tags.allow_nan
        return tags
