"""Holds comments, messages and docs to the rules of docs/writing.md.

usage: prose.py check [--shrink] | regenerate | list [FILE...]

`check` compares how often each file breaks each rule with bazel/prose_allowed.tsv, the list of what stood when the rules
came. More than listed is an error, named with file and line; fewer is an error too, so that the list only shrinks, and
--shrink writes the lower counts instead. The total of a rule never grows from the upstream branch to a change of it.
`regenerate` writes the list anew from the sources, for example after a merge or a renamed file. `list` prints all places
that break a rule.
"""

import collections
import concurrent.futures
import dataclasses
import hashlib
import os
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).absolute().parent
sys.path.insert(0, str(HERE.parent))

from bazel import lint, prose_text  # noqa: E402

ALLOWED = pathlib.Path("bazel/prose_allowed.tsv")
# They quote what they look for.
EXCLUDED = {"bazel/prose.py", "bazel/prose_test.py"}
EXCLUDED_FOLDERS = ("third_party/rules_cc/", "third_party/remote_coverage_tools/")
COLUMNS_MAX = 100


@dataclasses.dataclass(frozen=True)
class Rule:
    """A mannerism: a pattern that finds it, and what to write instead."""

    name: str
    hint: str
    pattern: re.Pattern[str]
    only_sentences: bool = False  # a message or a cell of a table need not begin as a sentence does
    exception: re.Pattern[str] | None = None  # a sentence with this is right


_FINITE = (
    "is|are|was|were|be|has|have|had|may|might|can|cannot|could|must|does|do|did|will|would|should|shall|needs?|goes|go|"
    "comes?|came|takes?|took|means?|waits?|holds?|runs?|ran|gives?|gave|gets?|got|makes?|made|stays?|ends?|starts?|begins?|"
    "counts?|keeps?|kept|uses?|reads?|writes?|wrote|fails?|finds?|found|says?|said|shows?|knows?|knew|lets?|costs?|works?|"
    "returns?|calls?|serves?|saves?|belongs?|races?|wins?|won|lost|loses?|stands?|stood|becomes?|became|sees|saw|sends?|"
    "sent|lies|lay|puts?|adds?|leaves?|left|depends?|moves?|passes|allows?|appears?|changes?|checks?|compares?|decides?|"
    "builds?|skips?|differs?|enqueues?|reports?|asks?|passed|measures|learns?|frees?|happens?|includes?|prints?|rounds?|tunes?|tries|turns?|wants?|matters?"
)

RULES = [
    Rule(
        "hidden-subject",
        "begin with a subject: `The rank that ...`, `Number of ...`; `Returns true if ...`, not `Whether ...`; "
        "`If ...`, not `Where ...`",
        re.compile(
            r"^[(\"]?(What|Who|Whose|Whom|Whoever|Whether|Those|How|Where|Behind|In front of|Of|Beside|"
            r"(By|With|From|To|For|On|In|After|Under|At) (what|whom|which|how))\b|"
            r"^(of|whose|behind|in front of|beside|by (what|whom|which|how))\b"
        ),
        only_sentences=True,
        # Questions, labels ("What leaves: ...") and an idiom.
        exception=re.compile(r"\?[)\"]?$|^(How|What|Where) to\b|^(What|Who|How|Where)( [\w']+){1,2}:|^Of course\b"),
    ),
    Rule(
        "preposition",
        "give the sentence a subject and a verb: `The caller holds the lock.`, not `Under the lock.`",
        re.compile(
            r"^(By|In|On|At(?! (most|least))|For(?! (example|instance))|From|To(?! \w+$)|With|Without|Under|Over|After|"
            r"Before|Between|Among|Beyond|Through|As(?! in\b)|Into|Within|Inside|Outside|Against) (?!what|whom|which|how)"
            r"(?!.*\b(" + _FINITE + r")\b)[^:]*$"
        ),
        only_sentences=True,
    ),
    Rule(
        "noun-clause",
        "name the thing: `the data that is left`, `the rank that waits`, not `what is left`, `who waits`",
        re.compile(
            r"(;|, (but|so)|\b(because|so that|that|so|when|if|while|since|until|unless|as)) "
            r"(what|who|whoever) (?!to\b)(?=\w+ )"
            r"(?=[^,;:.]*\b(is|are|was|were|has|have|had|may|can|cannot|must|does|do|will|would|goes|comes|needs|runs|waits|"
            r"counts|holds|stays|means|stands|differs|belongs|matters|costs|fails)\b[^,;:.]*\b(" + _FINITE + r")\b)"
        ),
    ),
    Rule(
        "talking-code",
        "code does not talk: it reports, returns, names, logs, states, receives or learns of something",
        re.compile(r"(?<![\w.])(say|says|said|saying|tell|tells|told|telling|hear|hears|heard|hearing|speaks)\b(?!\()"),
        exception=re.compile(r"\b(tell|tells|told|telling) \w* ?apart\b|\bthat is to say\b|\bsay,"),
    ),
    Rule(
        "where-for-if",
        "a condition is `if`, `when` or `unless`; `where` is a place",
        re.compile(
            r"(\b(only|except|even|also|but|nothing|none|None|null|nullptr|NULL|[Ee]mpty|[Ff]alse|[Tt]rue|0|unless)|\"\"|;) "
            r"where\b|\bwhere (there|no|not|none|nobody|nothing|neither|that|one|it can|it cannot|it may) |"
            r"(?<!,)(?<!\bis) where an? "
        ),
        exception=re.compile(r"\b(point|place|line|position|folder|file|index|offset|address) where\b"),
    ),
    Rule(
        "behind-in-time",
        "`after` and `before` in time and order, not `behind` and `in front of`",
        re.compile(r"\b([Bb]ehind|[Ii]n front of)\b"),
        exception=re.compile(
            r"^([Bb]ehind|[Ii]n front of)\b|"  # hidden-subject has it
            r"\b(leave|leaves|leaving|left|stay|stays|stayed|fall|falls|fell|lag|lags|far)\b[^,;.]*\bbehind\b"
        ),
    ),
]
LONG_LINE = Rule("long-line", f"lines of docs wrap at {COLUMNS_MAX} columns", re.compile(rf"^.{{{COLUMNS_MAX + 1},}}$"))
MERGE_MARKER = Rule("merge-marker", "a merge has left this line; resolve it", re.compile(r"^(<{7}|>{7}) "))
HINTS = {rule.name: rule.hint for rule in [*RULES, LONG_LINE, MERGE_MARKER]}


@dataclasses.dataclass(frozen=True, order=True)
class Finding:
    """A place that breaks a rule."""

    file: str
    line: int
    rule: str
    text: str


# How often each file may break each rule.
Counts = dict[tuple[str, str], int]


def findings_of(path: pathlib.Path, text: str) -> list[Finding]:
    """The places of a file that break a rule: each rule once a sentence."""
    found = []
    for sentence in prose_text.sentences_of(path, text):
        for rule in RULES:
            if rule.only_sentences and not sentence.is_whole:
                continue
            match = rule.pattern.search(sentence.text)
            if match and not (rule.exception and rule.exception.search(sentence.text)):
                begin = max(0, match.start() - 30)
                excerpt = ("..." if begin else "") + sentence.text[begin : begin + 90]
                found.append(Finding(str(path), sentence.line, rule.name, excerpt))
    if path.suffix == ".md":
        for number, line in prose_text.wrappable_lines(text):
            if LONG_LINE.pattern.search(line):
                found.append(Finding(str(path), number, LONG_LINE.name, f"{len(line)} columns"))
        for number, line in enumerate(text.splitlines(), 1):
            if MERGE_MARKER.pattern.search(line):
                found.append(Finding(str(path), number, MERGE_MARKER.name, line))
    return sorted(found)


def _findings_of_file(path: pathlib.Path) -> list[Finding]:
    return findings_of(path, path.read_text())


def all_findings() -> list[Finding]:
    files = [
        path
        for path in lint.sources()
        if str(path) not in EXCLUDED and not str(path).startswith(EXCLUDED_FOLDERS) and prose_text.has_prose(path)
    ]
    with concurrent.futures.ProcessPoolExecutor(max_workers=os.cpu_count()) as pool:
        return [each for found in pool.map(_findings_of_file, files, chunksize=32) for each in found]


def counted(findings: list[Finding]) -> Counts:
    return dict(collections.Counter((each.file, each.rule) for each in findings))


def parse(text: str) -> Counts:
    """Reads a list. The marks of a merge are skipped; of two counts for one file the larger is taken, until --shrink."""
    counts: Counts = {}
    for line in text.splitlines():
        fields = line.split("\t")
        if len(fields) == 3 and not line.startswith("#"):
            file, rule, count = fields
            counts[file, rule] = max(int(count), counts.get((file, rule), 0))
    return counts


def rules_mark() -> str:
    """Lists of the same mark were made by the same rules."""
    total = hashlib.sha256()
    for name in ("prose.py", "prose_text.py"):
        total.update((HERE / name).read_bytes())
    return f"# rules {total.hexdigest()[:12]}"


def written(counts: Counts) -> str:
    lines = [rules_mark(), "# file, rule, count; `./dev lint --shrink` writes lower counts (docs/writing.md)"]
    lines += [f"{file}\t{rule}\t{count}" for (file, rule), count in sorted(counts.items()) if count]
    return "\n".join(lines) + "\n"


def totals(counts: Counts) -> dict[str, int]:
    result: dict[str, int] = collections.Counter()
    for (_, rule), count in counts.items():
        result[rule] += count
    return dict(result)


def new_findings(findings: list[Finding], allowed: Counts, changed_lines: dict[str, set[int]]) -> list[Finding]:
    """The places of each file and rule with more than is allowed: those on changed lines, or all if none is on one."""
    found = []
    for key, count in counted(findings).items():
        if count > allowed.get(key, 0):
            places = [each for each in findings if (each.file, each.rule) == key]
            found += [each for each in places if each.line in changed_lines.get(each.file, set())] or places
    return sorted(found)


def shrunk(counts: Counts, allowed: Counts) -> Counts:
    """The list with the counts that are lower now."""
    return {key: min(count, counts.get(key, 0)) for key, count in allowed.items() if counts.get(key, 0)}


def grown_rules(now: Counts, before: Counts) -> list[str]:
    """The rules whose total in the list is larger than it was."""
    earlier = totals(before)
    return [f"{rule} ({earlier.get(rule, 0)} -> {n})" for rule, n in sorted(totals(now).items()) if n > earlier.get(rule, 0)]


def changed_lines_since(base: str) -> dict[str, set[int]]:
    """The lines of each file that are new since a commit; a file that git does not know is left out."""
    lines: dict[str, set[int]] = collections.defaultdict(set)
    file = ""
    for line in lint.git("diff", "-U0", "--no-color", base).splitlines() if base else []:
        if line.startswith("+++ b/"):
            file = line.removeprefix("+++ b/")
        elif match := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            first, count = int(match[1]), int(match[2] or 1)
            # A sentence begins on a line in front of the one that was changed, perhaps.
            lines[file] |= set(range(first - 1, first + count))
    return lines


def check(shrink: bool) -> int:
    findings = all_findings()
    counts = counted(findings)
    allowed = parse(ALLOWED.read_text()) if ALLOWED.exists() else {}
    base = lint.change_base()
    news = new_findings(findings, allowed, changed_lines_since(base))
    for each in news:
        print(f"{each.file}:{each.line}: {each.rule}: {each.text}")
    for rule in sorted({each.rule for each in news}):
        print(f"{rule}: {HINTS[rule]}")
    failed = bool(news)
    if news:
        print("prose: more than bazel/prose_allowed.tsv lists; write it anew (docs/writing.md has examples)", file=sys.stderr)
    smaller = shrunk(counts, allowed)
    fewer = sorted(key for key in allowed if smaller.get(key, 0) < allowed[key])
    if fewer and shrink:
        ALLOWED.write_text(written(smaller))
    elif fewer:
        for file, rule in fewer:
            print(f"{file}: {rule}: {counts.get((file, rule), 0)}, and {allowed[file, rule]} are listed")
        print("prose: fewer than listed: `./dev lint --shrink` writes the lower counts", file=sys.stderr)
        failed = True
    has_earlier = bool(base) and bool(lint.git("ls-tree", "--name-only", base, str(ALLOWED)))
    earlier = lint.git("show", f"{base}:{ALLOWED}") if has_earlier else ""
    # Other rules count differently.
    if earlier.startswith(rules_mark()):
        grown = grown_rules(smaller if shrink else allowed, parse(earlier))
        if grown:
            print(f"prose: the list only shrinks, and has grown: {', '.join(grown)}", file=sys.stderr)
            failed = True
    print(f"prose: {sum(counts.values())} listed places, {len(news)} to mend", file=sys.stderr)
    return 1 if failed else 0


def regenerate() -> int:
    counts = counted(all_findings())
    before = totals(parse(ALLOWED.read_text()) if ALLOWED.exists() else {})
    ALLOWED.write_text(written(counts))
    for rule, total in sorted(totals(counts).items()):
        print(f"{rule}: {before.get(rule, 0)} -> {total}")
    return 0


def main(arguments: list[str]) -> int:
    if arguments in (["check"], ["check", "--shrink"]):
        return check("--shrink" in arguments)
    if arguments == ["regenerate"]:
        return regenerate()
    if arguments[:1] == ["list"]:
        wanted = set(arguments[1:])
        for each in all_findings():
            if not wanted or each.file in wanted:
                print(f"{each.file}:{each.line}: {each.rule}: {each.text}")
        return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
