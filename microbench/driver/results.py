"""Files of results: one JSON object per line."""

import json


def write_rows(folder, benchmark, label, rows):
    """Writes the results of one benchmark on one host, and says where."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{benchmark}-{label}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    print(f"{label}: {path}")
