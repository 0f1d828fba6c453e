"""Text tables."""


def table(head, rows, left=()):
    """Lines of an aligned table. Columns in `left` are left-aligned, others right-aligned."""
    cells = [list(head)] + [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]

    def line(row):
        return "  ".join(
            cell.ljust(width) if name in left else cell.rjust(width)
            for name, cell, width in zip(head, row, widths)).rstrip()

    rule = "  ".join("-" * width for width in widths)
    return [line(cells[0]), rule] + [line(row) for row in cells[1:]]


def bytes_text(count):
    """4, 16 K, 1 M."""
    for unit, size in (("M", 1 << 20), ("K", 1 << 10)):
        if count >= size and count % size == 0:
            return f"{count // size} {unit}"
    return str(count)


def figure_text(value):
    """A figure with about three digits; "-" for None."""
    if value is None:
        return "-"
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"
