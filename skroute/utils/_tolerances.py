"""The tolerances of decisions.

Each is relative to a quantity of the problem, or a number of rows. The same problem in
another unit of cost or quality therefore has the same decisions.
"""

# Relative to a total: sums of a million costs are exact to this. A plan may exceed its
# budget by this share of the budget. Two values that differ by this share of what is
# gained are equal.
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

# Rows: a share times a number of rows is a whole number if it misses one by less.
COUNT_ROUNDING = 1e-9

# Divisor in place of a zero. Smaller than any value, cost or sum of them in a usual
# unit.
TINY = 1e-300
