"""The tolerances of decisions, each relative to a quantity of the problem.

None is an amount of money or quality. The same problem in another unit has the same decisions.
"""

# Relative to a total: sums of a million costs are exact to this. A plan may exceed its budget by
# this share of the budget. Two values that differ by this share of what is gained are equal.
ROUNDING = 1e-12

# Relative to a dual price: efficiencies (value per cost) that differ by less are tied. Averages
# of the same outcomes differ by rounding.
TIE = 1e-9

# Divisor in place of a zero. Smaller than any value, cost or sum of them in a usual unit.
TINY = 1e-300
