"""HiGHS without its banner. Import this file in functions: highspy loads slowly."""

import highspy


class SilentHighs(highspy.Highs):
    """Solver that prints nothing.

    HiGHS 1.16 prints its version when callbacks are enabled, which its constructor
    does. The output is therefore switched off before.
    """

    def __init__(self):
        super().__init__()
        self.silent()

    def enableCallbacks(self):  # noqa: N802 (name of highspy)
        """Switch the output off, then enable callbacks."""
        self.silent()
        super().enableCallbacks()
