"""Tolerances of decisions: numbers that differ by less are equal up to rounding.

Each is relative to a quantity of the problem, or a number of rows. The same problem in
another unit of cost or quality therefore has the same decisions.
"""

# Relative to a total: sums of a million costs have smaller rounding errors. A plan may
# exceed its budget by this share of the budget. Two values are equal if they differ by
# less than this share of the total gain.
ROUNDING = 1e-12

# Relative to a dual price: efficiencies (value per cost) that differ by less are tied.
# Averages of the same outcomes in another order differ by rounding.
TIE = 1e-9

# Relative to a score, or to 1 if the score is smaller: scores of a model that differ by
# less are tied. A model sums them in another order for a batch of another size.
SCORE_TIE = 1e-9

# Relative to a range or a limit: numbers that are checked against it may exceed it by
# this share. They were added, multiplied or divided in another order than the limit.
LIMIT_ROOM = 1e-9

# In rows: a share times a number of rows is read as a whole number if it differs from
# one by less than this.
COUNT_ROUNDING = 1e-9

# Divisor in place of 0. In a usual unit, it is smaller than each value, cost and sum of
# them that is not 0.
TINY = 1e-300
