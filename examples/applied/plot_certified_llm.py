"""
========================================
Save money, with a guarantee on the loss
========================================

The best of five language models answers most questions correctly, but small models answer many of
them as well, at a fraction of the price. How much can you save if the answers may be one, two or
three points worse, *and you want a guarantee of that*?

The log is made up. Its prices and approximate accuracies are those of the Llama 3 models with 1 to
405 billion parameters on MMLU. ``benchmarks/bench_guarantees.py`` uses a real log.
"""

# %%
# A cascade
# ---------
#
# The log has the quality of each answer, and a confidence. A cascade asks a small model first, and
# a larger one if the confidence is low. It is fitted on 1,000 questions.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.frozen import FrozenEstimator

from skroute.certified import CertificateDisplay, CertifiedRouter, PromiseMonitor
from skroute.routing import CascadeRouter

costs = {"1b": 19, "3b": 20, "8b": 38, "70b": 172, "405b": 574}


def make_log(n_rows, seed, harder=0.0):
    """Quality and confidence of the answers of each model."""
    rng = np.random.default_rng(seed)
    hard = rng.normal(harder, 1.6, size=(n_rows, 1))
    chance = 1 / (1 + np.exp(hard - [-0.4, 0.4, 0.8, 2.4, 2.9]))
    quality = (rng.uniform(size=chance.shape) < chance).astype(float)
    return quality, np.log(chance) + 0.25 * rng.normal(size=chance.shape)


def columns(rows):
    """A certificate needs an X; a cascade without features gets a column of zeros."""
    return np.zeros((len(rows), 1))


Q, confidence = make_log(1000, 0)
cascade = CascadeRouter(costs=costs).fit(None, Q, signals=confidence)

# %%
# The guarantee
# -------------
#
# The evidence is 3,000 other questions. The reference is the largest model for every question. The
# confidence of the guarantee is 95 %.

Q_evidence, confidence_evidence = make_log(3000, 1)
certified = {}
for points in (1, 2, 3):
    certified[points] = CertifiedRouter(
        FrozenEstimator(cascade),
        max_loss=points / 100,
        reference="405b",
        n_points=30,
        random_state=0,
    ).fit(columns(Q_evidence), Q_evidence, signals=confidence_evidence)
    print(certified[points].certificate_, "\n")

# %%
# Each operating point has an observed loss and an upper bound. The points are tested from the most
# expensive one downwards, until the first bound is above the limit.

fig, ax = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
CertificateDisplay.from_estimator(certified[2], ax=ax)
ax.set(
    title="Loss at each budget: observed (dotted), bound (solid)",
    xlabel="dollars per million questions",
    ylabel="loss against the largest model",
    ylim=(-0.03, 0.2),
)
plt.show()

# %%
# On new questions
# ----------------

Q_new, confidence_new = make_log(5000, 2)
for points, router in certified.items():
    _, route, spent = router.predict_routed(columns(Q_new), signals=confidence_new)
    loss = Q_new[:, 4].mean() - Q_new[np.arange(len(Q_new)), route].mean()
    print(
        f"at most {points} points: loss {100 * loss:.1f} points, {1 - spent.mean() / 574:.0%} saved"
    )

# %%
# Is the guarantee still true?
# ----------------------------
#
# Now the questions become harder. The monitor gets the cost of every question. For every tenth
# question, the largest model is asked, too, and the monitor also gets the loss. The picture shows
# the evidence that a limit is exceeded. An alarm is raised when this evidence is above 0.

router = certified[2]
monitor = PromiseMonitor(
    max_loss=0.02, budget=1.1 * router.certificate_.cost, audit_rate=0.1, random_state=0
)
for seed in range(3, 63):
    Q_part, confidence_part = make_log(100, seed, harder=0.0 if seed < 33 else 1.5)
    _, route, spent = router.predict_routed(columns(Q_part), signals=confidence_part)
    audited = monitor.audit(len(Q_part))
    loss = Q_part[:, 4] - Q_part[np.arange(len(Q_part)), route]
    monitor.update(cost=spent, loss=loss[audited])
print(monitor.alarm_)
monitor.plot().set_title("Evidence that the guarantee is broken")
plt.show()
