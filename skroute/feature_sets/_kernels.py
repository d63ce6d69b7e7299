"""Numba kernels of the Poly-Dom index. Imported on first use only.

Curves are cost polynomials with non-negative coefficients, lowest degree first, one per
row of `coef`. Every comparison of two curves evaluates both with the same Horner scheme
that lookup uses, so that a stored crossing is the first floating-point size at which
lookup itself sees the other order.

Loops stand where a slice could be assigned: that takes numba seconds to compile.
"""

import heapq

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def horner(coef, i, size):
    """Cost of curve `i` at `size`."""
    value = 0.0
    for power in range(coef.shape[1] - 1, -1, -1):
        value = value * size + coef[i, power]
    return value


@njit(cache=True, nogil=True)
def _polynomial(c, size):
    value = 0.0
    for power in range(len(c) - 1, -1, -1):
        value = value * size + c[power]
    return value


@njit(cache=True, nogil=True)
def _copied(part, count, out, first):
    """The first `count` of `part` into `out` from `first` on; where they end there."""
    for k in range(count):
        out[first + k] = part[k]
    return first + count


@njit(cache=True, nogil=True)
def _largest(values):
    largest = -np.inf
    for value in values:
        largest = max(largest, value)
    return largest


@njit(cache=True, nogil=True)
def _root_bound(c):
    """Upper bound of the real roots of `c` (Cauchy)."""
    top = len(c) - 1
    while top > 0 and c[top] == 0.0:
        top -= 1
    largest = 0.0
    for power in range(top):
        largest = max(largest, abs(c[power] / c[top]))
    # Where the leading coefficient is tiny, powers of the bound would overflow.
    return min(1.0 + largest, 1e50)


@njit(cache=True, nogil=True)
def _turning_points(c, low, high):
    """Sizes in (low, high) that split it into pieces on which `c` is monotone.

    These are the sign changes of the derivative. They are isolated by the same means:
    the derivative is monotone between the sign changes of its own derivative. So no
    complex root has to be told from a real one, and a root that only touches zero, which
    is no turning point, is not reported.
    """
    degree = len(c) - 1
    points = np.empty(max(degree, 1))
    n_points = 0
    if degree < 2:
        return points[:0]
    # derivatives[d] is the d-th derivative; start with the one of degree 1 and go down.
    table = np.zeros((degree, degree + 1))
    for power in range(degree + 1):
        table[0, power] = c[power]
    for d in range(1, degree):
        for power in range(degree - d + 1):
            table[d, power] = table[d - 1, power + 1] * (power + 1)
    for d in range(degree - 1, 0, -1):
        row = table[d, : degree - d + 1]
        found = np.empty(degree)
        n_found = 0
        left = low
        for piece in range(n_points + 1):
            right = points[piece] if piece < n_points else high
            at_left = _polynomial(row, left)
            at_right = _polynomial(row, right)
            if (at_left < 0.0 < at_right) or (at_right < 0.0 < at_left):
                a, b = left, right
                while True:
                    middle = a + 0.5 * (b - a)
                    if middle <= a or middle >= b:
                        break
                    if (_polynomial(row, middle) > 0.0) == (at_right > 0.0):
                        b = middle
                    else:
                        a = middle
                found[n_found] = b
                n_found += 1
            left = right
        n_points = _copied(found, n_found, points, 0)
    return points[:n_points]


@njit(cache=True, nogil=True)
def _first_above(coef, i, j, points, left, high, share):
    """First size at which `i` costs more than `j`; by that share of it at the end of a piece."""
    for piece in range(len(points) + 1):
        right = points[piece] if piece < len(points) else high
        if horner(coef, i, right) > horner(coef, j, right) * (1.0 + share):
            a, b = left, right
            while True:
                middle = a + 0.5 * (b - a)
                if middle <= a or middle >= b:
                    return b
                if horner(coef, i, middle) > horner(coef, j, middle):
                    b = middle
                else:
                    a = middle
        left = right
    return np.inf


@njit(cache=True, nogil=True)
def _just_above_zero(coef, i, j):
    """A size at which no power of it times a coefficient underflows."""
    least = np.inf
    for curve in (i, j):
        for power in range(coef.shape[1]):
            if 0.0 < coef[curve, power] < least:
                least = coef[curve, power]
    ratio = 1e-300 / least
    return ratio ** (1.0 / max(coef.shape[1] - 1, 1)) if ratio < 1.0 else ratio


@njit(cache=True, nogil=True)
def _ratio_integral(d, c):
    """Antiderivative of ``d' c - d c'``, whose sign is that of the slope of ``d / c``."""
    n = len(d)
    integral = np.zeros(2 * n)
    for p in range(n):
        for q in range(n):
            if p + q > 0:
                integral[p + q] += (p - q) * d[p] * c[q] / (p + q)
    return integral


@njit(cache=True, nogil=True)
def next_crossing(coef, i, j, now, high):
    """First size in [now, high] at which curve `i` costs strictly more than curve `j`.

    Curves that touch or coincide do not cross. Infinity when there is none.

    Where both curves are large, a difference may be lost to rounding at the very sizes at
    which it is largest. So it is looked for a second time where its share of the cost is
    largest.
    """
    if horner(coef, i, now) > horner(coef, j, now):
        return now
    difference, steepest = np.empty(coef.shape[1]), 0.0
    for power in range(coef.shape[1]):
        difference[power] = coef[i, power] - coef[j, power]
        steepest = max(steepest, abs(difference[power]))
    if _largest(difference) <= 0.0:
        return np.inf
    end = min(high, max(now, 2.0 * _root_bound(difference)) + 1.0)
    found = _first_above(coef, i, j, _turning_points(difference, now, end), now, end, 0.0)
    largest = _largest(coef[j])
    if largest == 0.0:
        return found
    start = now if now > 0.0 else _just_above_zero(coef, i, j)
    end = min(end, found)
    if start >= end:
        return found
    share = np.empty(coef.shape[1])
    for power in range(coef.shape[1]):
        difference[power] /= steepest
        share[power] = coef[j, power] / largest
    integral = _ratio_integral(difference, share)
    turns = _turning_points(integral, start, end)
    points = np.empty(len(turns) + 1)
    points[0] = start
    _copied(turns, len(turns), points, 1)
    # More than rounding: curves that coincide but for that would cross without end.
    return min(found, _first_above(coef, i, j, points, now, end, 1e-13))


@njit(cache=True, nogil=True)
def undominated(coef, quality):
    """Positions of the curves that no kept earlier curve undercuts everywhere.

    Parameters
    ----------
    coef : ndarray of shape (n_curves, degree + 1)
        Curves, by falling quality.

    quality : ndarray of shape (n_curves,)
        Their qualities.

    Returns
    -------
    ndarray of shape (n_kept,), dtype=int64
    """
    kept = np.empty(len(coef), dtype=np.int64)
    n_kept = 0
    for r in range(len(coef)):
        dominated = False
        for position in range(n_kept):
            s = kept[position]
            if quality[s] >= quality[r] and next_crossing(coef, s, r, 0.0, np.inf) == np.inf:
                dominated = True
                break
        if not dominated:
            kept[n_kept] = r
            n_kept += 1
    return kept[:n_kept]


@njit(cache=True, nogil=True)
def _walk(order, quality, out):
    """Skyline of curves in cost order: those better than everything cheaper."""
    count = 0
    best = -np.inf
    for position in range(len(order)):
        curve = order[position]
        if quality[curve] > best:
            best = quality[curve]
            out[count] = curve
            count += 1
    return count


@njit(cache=True, nogil=True)
def _append(skylines, used, part, count):
    while used + count > len(skylines):
        grown = np.empty(2 * len(skylines), dtype=np.int32)
        _copied(skylines, used, grown, 0)
        skylines = grown
    _copied(part, count, skylines, used)
    return skylines


@njit(cache=True, nogil=True)
def sweep(coef, quality, order, low, high, interesting_only):
    """Algorithm 3, PolyDomIntersections, with the skylines of the sizes it finds.

    Parameters
    ----------
    coef : ndarray of shape (n_curves, degree + 1), dtype=float64
        Curves.

    quality : ndarray of shape (n_curves,), dtype=float64
        Their qualities.

    order : ndarray of shape (n_curves,), dtype=int64
        Curves by cost at `low`; where they tie, the better first. Changed in place.

    low, high : float
        Range of sizes; `high` may be infinite.

    interesting_only : int
        1 stores a skyline only where it changes (Theorem 3.13), 0 at every crossing.

    Returns
    -------
    breaks : ndarray of shape (n_ranges,)
        First size of each range.

    offsets : ndarray of shape (n_ranges + 1,), dtype=int64
        Where the skyline of each range starts in `skylines`.

    skylines : ndarray of int32
        Curves of all skylines, each by rising cost and quality.

    n_crossings : int
        Crossings swept over.
    """
    n = len(order)
    position = np.empty(n, dtype=np.int64)
    best = np.empty(n)
    top = -np.inf
    for p in range(n):
        position[order[p]] = p
        top = max(top, quality[order[p]])
        best[p] = top

    heap = [(0.0, 0, 0) for _ in range(0)]
    for p in range(n - 1):
        t = next_crossing(coef, order[p], order[p + 1], low, high)
        if t < np.inf:
            heapq.heappush(heap, (t, order[p], order[p + 1]))

    breaks = [low]
    offsets = [0]
    part = np.empty(n, dtype=np.int32)
    skylines = np.empty(max(64, n), dtype=np.int32)
    used = _walk(order, quality, part)
    skylines = _append(skylines, 0, part, used)
    changed = False
    now = low
    n_crossings = 0
    while True:
        done = len(heap) == 0
        # A plain -1 is a type of its own, for which `next_crossing` would be compiled again.
        t, i, j = (np.inf, np.int64(-1), np.int64(-1)) if done else heapq.heappop(heap)
        if changed and t > now:
            # All that happens at one size is one change of the skyline.
            count = _walk(order, quality, part)
            breaks.append(now)
            offsets.append(used)
            skylines = _append(skylines, used, part, count)
            used += count
            changed = False
        if done:
            break
        p = position[i]
        if p + 1 >= n or order[p + 1] != j:
            continue  # the two are no longer neighbours
        now = t
        n_crossings += 1
        order[p], order[p + 1] = j, i
        position[j], position[i] = p, p + 1
        below = best[p - 1] if p > 0 else -np.inf
        best[p] = max(below, quality[j])
        # Theorem 3.13, extended to equal qualities: the skyline changes exactly when
        # nothing cheaper than the two is as good as the worse of them.
        if interesting_only == 0 or min(quality[i], quality[j]) > below:
            changed = True
        if p > 0:
            t = next_crossing(coef, order[p - 1], j, now, high)
            if t < np.inf:
                heapq.heappush(heap, (t, order[p - 1], j))
        t = next_crossing(coef, j, i, now, high)
        if t < np.inf:
            heapq.heappush(heap, (t, j, i))
        if p + 2 < n:
            t = next_crossing(coef, i, order[p + 2], now, high)
            if t < np.inf:
                heapq.heappush(heap, (t, i, order[p + 2]))
    offsets.append(used)
    return np.array(breaks), np.array(offsets), skylines[:used].copy(), n_crossings


@njit(cache=True, nogil=True)
def lookup(breaks, offsets, skylines, coef, sizes, budgets):
    """Best curve within each budget: binary search on size, then on cost.

    Returns
    -------
    ndarray of shape (n_queries,), dtype=int64
        Curve, or -1 where none fits.
    """
    n = len(sizes)
    out = np.empty(n, dtype=np.int64)
    block = min(max(n, 1), 512)
    at = np.empty(block, dtype=np.int64)
    left = np.empty(block, dtype=np.int64)
    # The searches of a block advance together, one halving at a time and without a branch
    # on the data: each query waits for memory and multiplications, but not for the others.
    for first in range(0, n, block):
        count = min(block, n - first)
        for q in range(count):
            at[q] = 0
        n_left = len(breaks)
        while n_left > 1:
            half = n_left >> 1
            for q in range(count):
                middle = at[q] + half
                at[q] = middle if breaks[middle] <= sizes[first + q] else at[q]
            n_left -= half
        longest = 0
        for q in range(count):
            start, stop = offsets[at[q]], offsets[at[q] + 1]
            at[q], left[q] = start, stop - start
            longest = max(longest, left[q])
        while longest > 1:
            longest -= longest >> 1
            for q in range(count):
                half = left[q] >> 1
                middle = at[q] + half
                cost = horner(coef, skylines[middle], sizes[first + q])
                at[q] = middle if cost <= budgets[first + q] else at[q]
                left[q] -= half
        for q in range(count):
            # Costs rise along a skyline: only its first curve can still be too expensive.
            curve = skylines[at[q]]
            fits = horner(coef, curve, sizes[first + q]) <= budgets[first + q]
            out[first + q] = curve if fits else -1
    return out
