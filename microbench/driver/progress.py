"""A progress bar on standard error if that is a terminal."""

import shutil
import sys


class Progress:
    """Counts steps of a known total: `with Progress(n) as bar: bar.step("what")`."""

    def __init__(self, total):
        self.total = max(total, 1)
        self.done = 0
        self.visible = sys.stderr.isatty()

    def __enter__(self):
        self.show("")
        return self

    def __exit__(self, *_):
        if self.visible:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def step(self, what):
        """Counts one finished step; `what` runs now."""
        self.done += 1
        self.show(what)

    def show(self, what):
        """Draws the bar with a label."""
        if not self.visible:
            return
        share = min(self.done / self.total, 1.0)
        width = 30
        full = int(share * width)
        line = f"[{'#' * full}{'.' * (width - full)}] {share:4.0%} {what}"
        columns = shutil.get_terminal_size().columns
        sys.stderr.write(f"\r\x1b[K{line[:columns - 1]}")
        sys.stderr.flush()
