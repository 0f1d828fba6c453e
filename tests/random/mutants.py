"""Programs with one wrong prediction each, which the executor must report."""
import re


def split(text):
    """The programs of a file, each a list of lines of words."""
    programs, lines = [], []
    for line in text.splitlines():
        lines.append(line.split())
        if lines[-1] == ["done"]:
            programs.append(lines)
            lines = []
    return programs


def plus_one(at):
    """A change of one number."""
    return lambda words, _: [*words[:at], str(int(words[at]) + 1), *words[at + 1:]]


def flip(words, _):
    """The first byte of a region."""
    return [*words[:4], f"{int(words[4][:2], 16) ^ 1:02x}" + words[4][2:]]


def repeated(words, _):
    """The first operation twice."""
    return [*words[:-1], words[1]] if len(words) > 2 else None


def less(words, _):
    """A sum that is exceeded."""
    return [words[0], "0", *words[2:]] if len(words) > 2 else None


def elected(words, _):
    """Values that nobody swapped."""
    return words[:2] + [str(int(word) + at % 2 * 10**9) for at, word in enumerate(words[2:])]


def unwritten(words, _):
    """Twins that nobody wrote."""
    written = int(words[1])
    values = [str(int(word) + 10**9) for word in words[2:2 + written]]
    return words[:2] + values + words[2 + written:] if written else None


def predicted(words, _):
    """The tag of an expectation that is predicted."""
    return plus_one(7)(words, _) if words[7] != "-1" else None


def announced(words, program):
    """Memory that a tag announces, if the rank looks at it."""
    _, window, rank, source, tag = words[:5]
    for at, line in enumerate(program[:-1]):
        if line[:4] == ["call", rank, "await_expectation", window] \
                and line[6:] == [source, tag] and program[at + 1][2] == "check_announced":
            return plus_one(7)(words, program)
    return None


def unseen(words, program):
    """A tag that was sent, if no expectation of several notifications hides it."""
    start = ["call", words[2], "start_expecting", words[1]]
    return None if any(line[:4] == start for line in program) else plus_one(4)(words, program)


def other_class(words, _):
    """Another error class."""
    return [*words[:5], "count" if words[5] == "rank" else "rank", *words[6:]]


# What is wrong: the beginning of the line, and its change; an empty one removes the line.
MUTANTS = {
    "memory at the end": ("end ", plus_one(5)),
    "memory with gaps": ("region ", flip),
    "fetched word": ("fetch ", plus_one(2)),
    "memory after a call": (r"call \d+ check ", plus_one(6)),
    "extent": ("side ", plus_one(3)),
    "counter": ("count ", plus_one(4)),
    "error class": (r"call \d+ wrong ", other_class),
    "tag sent": ("sent ", unseen),
    "notification not sent": ("sent ", lambda words, _: []),
    "notification left": ("left ", plus_one(4)),
    "expectation": (r"call \d+ await_expectation ", predicted),
    "announced memory": ("announced ", announced),
    "distinct numbers": ("permutation ", repeated),
    "sum": ("sums ", less),
    "election": ("election ", elected),
    "twins": ("twins ", unwritten),
}


def mutate(text):
    """One program for each mutant. Returns their text and, by seed, what is wrong."""
    programs, chosen, wrong = split(text), [], {}
    for name, (begin, change) in MUTANTS.items():
        for program in programs:
            changed = None
            for at, words in enumerate(program):
                if re.match(begin, " ".join(words)) and program not in chosen:
                    changed = change(words, program)
                if changed is not None:
                    break
            if changed is not None:
                programs.remove(program)
                chosen.append(program[:at] + [changed] * bool(changed) + program[at + 1:])
                wrong[int(program[0][1])] = name
                break
        else:
            raise SystemExit(f"no program has a line for the mutant: {name}")
    return "".join(" ".join(words) + "\n" for program in chosen for words in program), wrong
