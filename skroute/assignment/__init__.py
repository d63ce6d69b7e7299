"""Assignment: the multiple-choice knapsack problem, its dual price, and its bound.

Also here: backward induction, which spends a budget in several steps for each row.
"""

from skroute.assignment._path import AssignmentPath, Rule, assignment_path
from skroute.assignment._several import PlanLimit
from skroute.assignment._solve import Assignment, choose_at_price, solve_assignment

__all__ = [
    "Assignment",
    "AssignmentPath",
    "PlanLimit",
    "Rule",
    "assignment_path",
    "choose_at_price",
    "solve_assignment",
]
