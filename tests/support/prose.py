"""Phrases that pages, help texts and docstrings do not use, and what to write instead.

Readers know the terms of Delta Lake, Spark, Arrow and SQL. Each entry is a phrase that was used for
one of these terms, or that makes a sentence hard to read. Patterns are precise rather than
complete: a phrase that also has an ordinary use is listed with the words around it.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

TERM = "the field has a term for it"
VAGUE = "it does not say what happens, or who does it"
HOUSE_WORD = "only this project uses the word"

_COUNTED = "once|boolean|footer|rows?|line|action|array|page|command|parameter|entry|value"
_UNITS = "row|file|line|table|column|decision|purpose|session|change|key|fragment|partition"


@dataclass(frozen=True)
class Phrase:
    """A phrase that is not used: how it is found, an example, its replacement, and the reason."""

    pattern: str
    example: str
    better: str
    reason: str

    @property
    def expression(self) -> re.Pattern[str]:
        """The pattern; a space in it also matches a line break."""
        return re.compile(self.pattern.replace(" ", r"\s+"), re.IGNORECASE)


_ENTRIES = {
    TERM: (
        (r"\btexts\b", "texts of up to 32 bytes", "strings"),
        (r"\b(?:empty|written|greatest|smallest|least) text\b", "an empty text", "string"),
        (rf"\b(?:{_COUNTED}) an? (?:{_UNITS})\b", "one row a file", "per: one row per file"),
        (r"\b(?:rows|changes|files|bytes|requests) a second\b", "rows a second", "per second"),
        (r"\banew\b", "written anew", "again; rewritten, recreated, recomputed"),
        (r"\b(?:lies?|lay|lying) over\b|\bover one another\b", "lie over one another", "overlap"),
        (r"\breaders of changes\b", "readers of changes", "change data feed readers"),
        (r"\bchange feeds?\b", "a change feed", "change data feed"),
        (r"\bin order\b(?! (?:to|of)\b)", "rows are put in order", "sorted, clustered"),
        (r"\baside\b", "set aside", "quarantine (vacuum); back up, move (repair)"),
        (r"\b(?:sets?|puts?) (?:\w+ ){0,3}right\b", "set right what is wrong", "fix, repair"),
        (r"\bfold(?:s|ed|ing)?\b", "fold the log", "write a checkpoint"),
        (r"\bperhaps\b", "say perhaps where the answer is no", "possibly; false positive"),
        (r"\b(?:that|which) may pass\b", "errors that may pass", "retryable"),
        (r"\b(?:is|are|was|were|be) tried again\b", "is tried again", "is retried"),
        (r"\bleast and (?:the )?greatest\b", "least and greatest", "minimum and maximum"),
        (r"\bheld against\b", "rows are held against it", "checked against, compared with"),
        (r"\b(?:take|takes|took|taken) (?:its|their|the) place\b", "takes its place", "replaces"),
        (r"\bin the place of\b", "put in the place of", "replace; instead of"),
        (r"\bfurther keywords\b", "further keywords", "other keyword arguments"),
        (r"\bor nothing (?:is|does)\b", "all of it is, or nothing is", "one atomic commit"),
        (r"\b(?:gave|give[ns]?) away\b", "ids that were given away", "assigned"),
        (r"\bunforeseen\b|\bforesaw\b", "an unforeseen error", "unexpected"),
    ),
    VAGUE: (
        (r"\bwhat (?:goes|comes|went|came)\b", "what goes", "what is deleted, what is added"),
        (
            r"\b(?:rows?|files?) that (?:go|goes|went|comes?|came)\b(?! (?:from|closest)\b)",
            "rows that go",
            "deleted rows, added rows",
        ),
        (r"\bcame and went\b", "files that came and went", "added and removed"),
        (r"\b(?:what|which) became of\b", "what became of it", "the result, the outcome"),
        (
            r"\b(?:that|which|what|it|they|one) (?:is|are|was|were) there\b",
            "what is there",
            "exists; is supported; the current ...",
        ),
        (
            r"\bas (?:it is|they are)\b(?= (?:or|and|although|now|unless|if)\b|\s*[.,;:)]|\s*$)",
            "carried out as it is",
            "unchanged",
        ),
        (r"\bof (?:its|their) own\b", "a commit of its own", "separate; own"),
        (r"\bbesides?\b", "beside it", "with, in addition to, compared with, during"),
        (r"\bmeanwhile\b", "meanwhile", "during the run; concurrently"),
        (r"\bwhoever\b", "whoever commits second", "the writer, the caller"),
        (r"\b(?:no|some)body\b", "nobody knows", "no writer, another writer; it is unknown"),
        (
            r"\bso many\b(?!(?: \w+){1,4} that\b)",
            "so many commits",
            "this many, that many; the number",
        ),
        (r"\ball the same\b", "works all the same", "anyway, still"),
        (r"\bours\b", "a commit of ours", "lakehand's; this writer's"),
        (r"\b(?:of|to) no use\b", "a commit of no use", "unusable; not needed"),
        (r"\bholds? on to\b", "versions that they hold on to", "protected; kept"),
        (r"\bto the letter\b", "it is followed to the letter", "exactly"),
        (r"\blook(?:s|ing|ed)? after\b", "looks after tables", "maintains"),
    ),
    HOUSE_WORD: (
        (r"\bcrumbs?\b", "crumbs", "very small row groups"),
        (r"\b(?:the story of|on one page)\b", "the story of a rewrite", "name the steps"),
        (r"\blittered\b|\bmortal\b", "a littered table", "a table with orphans; killed writers"),
        (r"\brehears\w+\b", "a rehearsal", "a sample that is rewritten; an estimate"),
        (r"\b(?:workshops?|doom\w*|upkeep)\b", "upkeep", "operation; to delete; maintenance"),
    ),
}
PHRASES = tuple(Phrase(*entry, reason) for reason, entries in _ENTRIES.items() for entry in entries)


@dataclass(frozen=True)
class Found:
    """A phrase in a text."""

    line: int
    words: str
    phrase: Phrase


def find_phrases(text: str) -> Iterator[Found]:
    """Find the phrases of the list in a text, each with its line, counted from 1."""
    for phrase in PHRASES:
        for match in phrase.expression.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            yield Found(line, " ".join(match[0].split()), phrase)


def prose_of(page: str) -> str:
    """Return a Markdown page with code, link targets and comments blanked out, line by line.

    Of code blocks the comments stay: they are prose for the reader, too.
    """
    kept, in_code = [], False
    for line in page.splitlines():
        if line.startswith("```"):
            in_code = not in_code
            kept.append("")
        elif in_code:
            kept.append(line.partition("# ")[2])
        else:
            kept.append(re.sub(r"`[^`]*`|\]\([^)]*\)|<!--.*?-->", "`", line))
    return "\n".join(kept)


def message_strings(source: str) -> list[tuple[int, str]]:
    """Return the strings of Python source that have a space, with their lines, without docstrings.

    These are messages, hints and help texts, and some SQL. Values in f-strings become `{}`.
    """
    skipped, found = set(), []
    for node in ast.walk(ast.parse(source)):  # parents come before their parts
        if isinstance(node, ast.Expr):
            skipped.add(node.value)
        elif isinstance(node, ast.JoinedStr):
            skipped.update(node.values)
            parts = (part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
            found.append((node.lineno, "".join(map(str, parts))))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in skipped:
            found.append((node.lineno, node.value))
    return sorted((line, text) for line, text in found if " " in text)


def source_prose(source: str) -> str:
    """Return the docstrings and comments of Python source, each on its lines, without code."""
    lines = [""] * (source.count("\n") + 2)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            lines[token.start[0] - 1] = token.string.lstrip("#: ")
        elif token.type == tokenize.STRING and token.string.startswith('"""'):
            for offset, line in enumerate(token.string.splitlines()):
                if not line.lstrip().startswith(">>>"):
                    lines[token.start[0] - 1 + offset] = line.strip().strip('"')
    return re.sub(r"`[^`\n]*`", "`", "\n".join(lines))
