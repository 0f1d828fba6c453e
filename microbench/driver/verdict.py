"""Which figures are behind the better plain host, and by how much."""

import statistics


def behind(rows):
    """(ratio, row) of the rows that are slower, slowest first."""
    slower = [(row["ratio"], row) for row in rows if (row.get("ratio") or 0) > 1.0]
    return sorted(slower, key=lambda found: -found[0])


def name_of(row):
    """What a row measures, for a reader."""
    where = f" {row['distance']}" if row.get("distance") else ""
    return f"{row['name']} ({row['window']}){where}"


def doubt_of(row):
    """Why not to trust a row, or an empty text."""
    return "" if row.get("equally_fast", True) else ", while others shared some runs' cores"


def verdict(label, rows):
    """The verdict on one host's figures, as text."""
    ratios = [row["ratio"] for row in rows if row.get("ratio")]
    if not ratios:
        return f"{label}: nothing to compare with"
    slower = behind(rows)
    text = [f"{label}: {len(slower)} of {len(ratios)} figures behind, "
            f"{sum(ratio > 1.1 for ratio, _ in slower)} by more than 10 %; "
            f"geometric mean {statistics.geometric_mean(ratios):.2f}"]
    text += [f"  {ratio:6.2f}  {name_of(row)}{doubt_of(row)}" for ratio, row in slower]
    apart = [name_of(row) for row in rows if row.get("not_comparable")]
    if apart:
        text.append(f"  not compared, as the processors of the runs were not equally far apart: "
                    f"{', '.join(apart)}")
    return "\n".join(text)
