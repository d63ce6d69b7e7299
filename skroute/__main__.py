"""The command line: ``python -m skroute``."""

import argparse
import sys

__all__ = ["main"]


def main(arguments=None):
    """Run a command.

    Parameters
    ----------
    arguments : list of str, default=None
        The words of the command line; None takes those of this process.

    Returns
    -------
    int
        0, or 2 after an error that was printed.

    Examples
    --------
    >>> from skroute.__main__ import main
    >>> main(["route-batch", "no-such.joblib", "in.parquet", "out"])
    2
    """
    parser = argparse.ArgumentParser(prog="python -m skroute", description="Cost-aware prediction.")
    commands = parser.add_subparsers(dest="command", required=True)
    batch = commands.add_parser(
        "route-batch",
        help="decide for every row of a Parquet data set",
        description="Decide for every row of a Parquet data set with a fitted router. A run that "
        "was cut off goes on where it was.",
    )
    batch.add_argument("router", help="joblib file of a fitted router; it runs code: your own only")
    batch.add_argument("source", help="Parquet file, or a folder of them")
    batch.add_argument("target", help="folder for the parts")
    batch.add_argument("--budget", type=float, help="mean cost per row; the router's own if absent")
    batch.add_argument(
        "--policy", choices=["online", "batch"], help="batch makes the budget a hard cap"
    )
    batch.add_argument("--columns", nargs="+", help="columns that the router reads")
    batch.add_argument("--keep", nargs="+", default=[], help="columns to copy, such as an id")
    batch.add_argument("--batch-rows", type=int, default=65_536, help="rows in memory at a time")
    told = parser.parse_args(arguments)
    import joblib

    from skroute.routing import route_batch

    try:
        router = joblib.load(told.router)
    except OSError as error:
        print(f"route-batch: {error}", file=sys.stderr)
        return 2
    except Exception as error:
        # A pickle that is none, or of classes that are not here, fails in any way.
        print(
            f"route-batch: {told.router!r} is no joblib file of a fitted router that can be read "
            f"here: {type(error).__name__}: {error}",
            file=sys.stderr,
        )
        return 2
    try:
        done = route_batch(
            router,
            told.source,
            told.target,
            budget=told.budget,
            policy=told.policy,
            columns=told.columns,
            keep=told.keep,
            batch_rows=told.batch_rows,
        )
    except (OSError, TypeError, ValueError) as error:
        # Notes say where: in which file, of which estimator.
        print(f"route-batch: {error}", *getattr(error, "__notes__", ()), sep="\n", file=sys.stderr)
        return 2
    print(
        f"{done.n_rows} rows in {done.n_parts} parts ({done.n_resumed} were there): mean cost "
        f"{done.expected_cost:.6g}, mean estimated quality {done.quality:.6g}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
