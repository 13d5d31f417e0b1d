"""A launch script, read as text: variables are substituted, nothing is run.

What only running would tell (command substitution, parameters, the environment) stays unknown, and
a word that contains it is marked so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from planner.advisor.shell_words import LONGEST, MOST_WORDS, NAME, UNKNOWN, Words
from planner.lint.document import Place

_ASSIGN = re.compile(rf"({NAME})(\+?)=")
_HEREDOC = re.compile(r"<<(-?)[ \t]*(['\"]?)([A-Za-z_][A-Za-z0-9_]*)\2")
_REDIRECT = re.compile(r"(?:\d*|&)(?:>>|>\||>&|<&|<<<|>|<)")
_PREFIXES = frozenset({"if", "then", "else", "elif", "do", "while", "until", "!", "{", "time"})
_PREFIXES |= frozenset({"exec", "nohup", "eval"})
_DECLARE = frozenset({"export", "local", "declare", "readonly", "typeset", "set"})


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a command after expansion; ``known`` if nothing in it is left open."""

    text: str
    place: Place

    @property
    def known(self) -> bool:
        """Whether every part of it could be read."""
        return UNKNOWN not in self.text


@dataclass(frozen=True, slots=True)
class Script:
    """The commands of a script in order, the files it writes, and the variables it leaves open."""

    commands: tuple[tuple[Word, ...], ...]
    files: Mapping[str, tuple[str, int]]  # name -> (text, first line)
    unknown: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


class _Commands:
    """The commands of a text, read one after another."""

    def __init__(self, words: Words) -> None:
        self.words = words
        self.commands: list[tuple[Word, ...]] = []
        self.files: dict[str, tuple[str, int]] = {}
        self.current: list[Word] = []
        self.heredocs: list[tuple[str, bool, bool]] = []
        self.target = ""  # file the current command writes to
        self.count = 0

    def read(self) -> None:
        words = self.words
        while words.at < len(words.text):
            char = words.text[words.at]
            if char == "\n":
                words.at += 1
                self.end_command()
                self.take_heredocs()
            elif char in " \t":
                words.at += 1
            elif words.text.startswith("\\\n", words.at):
                words.at += 2
            elif char == "#":
                words.skip_line()
            elif match := _HEREDOC.match(words.text, words.at):
                self.heredocs.append((match.group(3), bool(match.group(1)), not match.group(2)))
                words.at = match.end()
            elif match := _REDIRECT.match(words.text, words.at):
                self.redirect(match.group(), match.end())
            elif char in ";&|()":
                words.at += 1
                self.end_command()
            elif (match := _ASSIGN.match(words.text, words.at)) and self.may_assign():
                self.assign(match)
            else:
                self.word()
        self.end_command()
        self.take_heredocs()

    def may_assign(self) -> bool:
        return all(
            w.text in _PREFIXES or w.text in _DECLARE or w.text == "env" for w in self.current
        )

    def redirect(self, sign: str, end: int) -> None:
        self.words.at = end
        while self.words.text[self.words.at : self.words.at + 1] in (" ", "\t"):
            self.words.at += 1
        words = self.words.expand_word()
        if ">" in sign and "&" not in sign and words:
            self.target = words[0]

    def assign(self, match: re.Match[str]) -> None:
        words = self.words
        name, add = match.group(1), bool(match.group(2))
        words.at = match.end()
        if words.text.startswith("(", words.at):
            values = words.array()
        elif words.at < len(words.text) and words.text[words.at] not in " \t\n;&|":
            values = [" ".join(words.expand_word(split=False))]
        else:
            values = [""]
        if add:
            old = words.values.get(name, [])
            is_array = match.string.startswith("(", match.end())
            values = [*old, *values] if is_array else ["".join([*old[-1:], *values])]
        if sum(map(len, values)) > LONGEST:
            raise words.fail(f"variable {name} grows beyond {LONGEST} characters", match.start())
        words.values[name] = values

    def word(self) -> None:
        start = self.words.at
        texts = self.words.expand_word()
        if not self.current and len(texts) == 1 and texts[0] in _PREFIXES:
            return
        self.count += len(texts)
        if self.count > MOST_WORDS:
            raise self.words.fail(f"more than {MOST_WORDS} words", start)
        self.current += [Word(text, self.words.place(start)) for text in texts]

    def end_command(self) -> None:
        words = tuple(self.current)
        if words and words[0].text not in _DECLARE:
            self.commands.append(words)
        self.current = []

    def take_heredocs(self) -> None:
        """Bodies of here-documents that began on the line just ended."""
        words = self.words
        for end_word, strip, expand in self.heredocs:
            start, lines = words.at, []
            while words.at < len(words.text):
                line = words.take_line()
                line = line.lstrip("\t") if strip else line
                if line.strip() == end_word:
                    break
                lines.append(line)
            body = "\n".join(lines)
            if expand:
                body = words.inner(body)
            if self.target:
                self.files[self.target] = (body, words.place(start).line)
        self.heredocs = []
        self.target = ""


def read_script(text: str, name: str, first_line: int = 1) -> Script:
    r"""The commands of a shell script, variables written out.

    Raises
    ------
    Unreadable
        If a quote or bracket is not closed, or expansions grow without bound.

    Examples
    --------
    >>> script = read_script('N=4\nrun --gpus $((N*2)) \\\n  --name "$HOME/x"', "x.sh")
    >>> [word.text for word in script.commands[0]][:3], script.unknown
    (['run', '--gpus', '8'], ('HOME',))
    """
    words = Words(text, name, first_line)
    reader = _Commands(words)
    reader.read()
    return Script(
        commands=tuple(reader.commands),
        files=reader.files,
        unknown=tuple(words.unknown),
        variables={k: " ".join(v) for k, v in words.values.items()},
    )
