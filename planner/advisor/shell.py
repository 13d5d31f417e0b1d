"""A launch script, read as text: variables are substituted, nothing is run.

What only running would tell (command substitution, parameters, the environment) stays unknown, and
a word that contains it is marked so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from planner.advisor.arithmetic import calculate
from planner.advisor.source import Unreadable
from planner.lint.document import Place

LONGEST = 1 << 16  # characters a variable may grow to


MOST_WORDS = 20_000


DEEPEST = 30  # expansions inside expansions


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


_ASSIGN = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=")


_HEREDOC = re.compile(r"<<(-?)[ \t]*(['\"]?)([A-Za-z_][A-Za-z0-9_]*)\2")


_REDIRECT = re.compile(r"(?:\d*|&)(?:>>|>\||>&|<&|<<<|>|<)")


_PREFIXES = frozenset({"if", "then", "else", "elif", "do", "while", "until", "!", "{", "time"})


_PREFIXES |= frozenset({"exec", "nohup", "eval"})


_DECLARE = frozenset({"export", "local", "declare", "readonly", "typeset", "set"})


UNKNOWN = "\ufffd"  # stands for text only a run would give


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


class _Lexer:
    def __init__(self, text: str, name: str, first_line: int = 1, depth: int = 0) -> None:
        self.text, self.name, self.first, self.depth = text, name, first_line, depth
        self.at = 0
        self.starts = [0, *(i + 1 for i, c in enumerate(text) if c == "\n")]
        self.values: dict[str, list[str]] = {}
        self.unknown: dict[str, None] = {}
        self.commands: list[tuple[Word, ...]] = []
        self.files: dict[str, tuple[str, int]] = {}
        self.current: list[Word] = []
        self.heredocs: list[tuple[str, bool, bool]] = []
        self.target = ""  # file the current command writes to
        self.count = 0

    def place(self, at: int) -> Place:
        from bisect import bisect_right

        line = bisect_right(self.starts, at)
        return Place(line + self.first - 1, at - self.starts[line - 1] + 1)

    def fail(self, reason: str, at: int) -> Unreadable:
        place = self.place(min(at, len(self.text)))
        return Unreadable(self.name, reason, place.line, place.column)

    # --- commands ---

    def read(self) -> None:
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == "\n":
                self.at += 1
                self.end_command()
                self.take_heredocs()
            elif char in " \t":
                self.at += 1
            elif self.text.startswith("\\\n", self.at):
                self.at += 2
            elif char == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif match := _HEREDOC.match(self.text, self.at):
                self.heredocs.append((match.group(3), bool(match.group(1)), not match.group(2)))
                self.at = match.end()
            elif match := _REDIRECT.match(self.text, self.at):
                self.redirect(match.group(), match.end())
            elif char in ";&|()":
                self.at += 1
                self.end_command()
            elif (match := _ASSIGN.match(self.text, self.at)) and self.may_assign():
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
        self.at = end
        while self.text[self.at : self.at + 1] in (" ", "\t"):
            self.at += 1
        words = self.expand_word()
        if ">" in sign and "&" not in sign and words:
            self.target = words[0]

    def assign(self, match: re.Match[str]) -> None:
        name, add = match.group(1), bool(match.group(2))
        self.at = match.end()
        if self.text.startswith("(", self.at):
            values = self.array()
        elif self.at < len(self.text) and self.text[self.at] not in " \t\n;&|":
            values = [" ".join(self.expand_word(split=False))]
        else:
            values = [""]
        if add:
            old = self.values.get(name, [])
            is_array = match.string.startswith("(", match.end())
            values = [*old, *values] if is_array else ["".join([*old[-1:], *values])]
        if sum(map(len, values)) > LONGEST:
            raise self.fail(f"variable {name} grows beyond {LONGEST} characters", match.start())
        self.values[name] = values

    def array(self) -> list[str]:
        start = self.at
        self.at += 1
        out: list[str] = []
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == ")":
                self.at += 1
                return out
            if char in " \t\n":
                self.at += 1
            elif self.text.startswith("\\\n", self.at):
                self.at += 2
            elif char == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif char in ";&|(<>":
                self.at += 1
            else:
                out += self.expand_word()
            if len(out) > MOST_WORDS:
                raise self.fail(f"an array of over {MOST_WORDS} words", start)
        raise self.fail("'(' is not closed", start)

    def word(self) -> None:
        start = self.at
        texts = self.expand_word()
        if not self.current and len(texts) == 1 and texts[0] in _PREFIXES:
            return
        self.count += len(texts)
        if self.count > MOST_WORDS:
            raise self.fail(f"more than {MOST_WORDS} words", start)
        self.current += [Word(text, self.place(start)) for text in texts]

    def end_command(self) -> None:
        words = tuple(self.current)
        if words and words[0].text not in _DECLARE:
            self.commands.append(words)
        self.current = []

    def take_heredocs(self) -> None:
        """Bodies of here-documents that began on the line just ended."""
        for end_word, strip, expand in self.heredocs:
            start, lines = self.at, []
            while self.at < len(self.text):
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
                line = self.text[self.at : end]
                self.at = min(end + 1, len(self.text))
                line = line.lstrip("\t") if strip else line
                if line.strip() == end_word:
                    break
                lines.append(line)
            body = "\n".join(lines)
            if expand:
                body = self.inner(body)
            if self.target:
                self.files[self.target] = (body, self.place(start).line)
        self.heredocs = []
        self.target = ""

    # --- words ---

    def inner(self, text: str) -> str:
        """Text with its expansions done, as inside double quotes."""
        if self.depth > DEEPEST:
            raise self.fail(f"expansions nested deeper than {DEEPEST}", self.at)
        lexer = _Lexer(text, self.name, 1, self.depth + 1)
        lexer.values, lexer.unknown = self.values, self.unknown
        return "".join(lexer.quoted(len(text)))

    def quoted(self, stop: int | None = None) -> list[str]:
        """The inside of double quotes, up to the closing quote (or to ``stop``)."""
        out: list[str] = []
        start, size = self.at, 0
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == '"' and stop is None:
                self.at += 1
                return out
            if char == "\\" and self.at + 1 < len(self.text):
                escaped = self.text[self.at + 1]
                out.append(
                    "" if escaped == "\n" else escaped if escaped in '$`"\\' else "\\" + escaped
                )
                self.at += 2
            elif char in "$`":
                values = self.expansion()
                out.append(" ".join(values))
            else:
                out.append(char)
                self.at += 1
            size += len(out[-1])
            if size > LONGEST:
                raise self.fail(f"text grows beyond {LONGEST} characters", start)
        if stop is None:
            raise self.fail("a double quote is not closed", start)
        return out

    def expand_word(self, split: bool = True) -> list[str]:
        """One word of the text, expanded; unquoted expansions may split it into several."""
        parts: list[str] = [""]
        seen, size, start = False, 0, self.at
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in " \t\n;&|()<>":
                break
            if self.text.startswith("\\\n", self.at):
                self.at += 2
                break
            seen = True
            if char == "'":
                end = self.text.find("'", self.at + 1)
                if end < 0:
                    raise self.fail("a single quote is not closed", self.at)
                parts[-1] += self.text[self.at + 1 : end]
                self.at = end + 1
            elif char == '"':
                self.at += 1
                self.in_quotes(parts)
            elif char == "\\":
                parts[-1] += self.text[self.at + 1 : self.at + 2]
                self.at += 2
            elif char in "$`":
                values = self.expansion()
                text = " ".join(values)
                pieces = text.split() if split else [text]
                if split and text[:1].isspace() and parts[-1]:
                    parts.append("")
                if pieces:
                    parts[-1] += pieces[0]
                    parts += pieces[1:]
            else:
                parts[-1] += char
                self.at += 1
            size = max(size, sum(map(len, parts[-2:])))
            if size > LONGEST or len(parts) > MOST_WORDS:
                raise self.fail(f"a word grows beyond {LONGEST} characters", start)
        if not seen:
            self.at += 1
            return []
        was_quoted = self.text[start : start + 1] in ("'", '"')
        return [part for part in parts if part or was_quoted]

    def in_quotes(self, parts: list[str]) -> None:
        """Double-quoted text; a quoted ``${NAME[@]}`` alone keeps its words apart."""
        match = re.compile(r'\$\{([A-Za-z_][A-Za-z0-9_]*)\[@\]\}"').match(self.text, self.at)
        if match and match.group(1) in self.values:
            values = self.values[match.group(1)]
            self.at = match.end()
            if values:
                parts[-1] += values[0]
                parts += values[1:]
        else:
            parts[-1] += "".join(self.quoted())

    def expansion(self) -> list[str]:
        """What stands at a ``$`` or a back quote."""
        text = self.text
        if text[self.at] == "`":
            end = text.find("`", self.at + 1)
            self.at = len(text) if end < 0 else end + 1
            return [UNKNOWN]
        if text.startswith("$((", self.at):
            return self.arithmetic()
        if text.startswith("$(", self.at):
            self.at = self.closing(self.at + 1, "(", ")")
            return [UNKNOWN]
        if text.startswith("${", self.at):
            end = self.closing(self.at + 1, "{", "}")
            body, self.at = text[self.at + 2 : end - 1], end
            return self.braces(body)
        match = _NAME.match(text, self.at + 1)
        if match:
            self.at = match.end()
            return self.lookup(match.group())
        if text[self.at + 1 : self.at + 2] in tuple("0123456789@*#?$!-"):
            self.at += 2
            return [UNKNOWN] if text[self.at - 1] not in "@*" else []
        self.at += 1
        return ["$"]

    def closing(self, at: int, left: str, right: str) -> int:
        """Position after the bracket that closes the one at ``at``."""
        depth, start = 0, at
        while at < len(self.text):
            if self.text[at] == left:
                depth += 1
            elif self.text[at] == right:
                depth -= 1
                if depth == 0:
                    return at + 1
            at += 1
        raise self.fail(f"{left!r} is not closed", start)

    def lookup(self, name: str) -> list[str]:
        if name in self.values:
            return self.values[name]
        self.unknown[name] = None
        return [UNKNOWN]

    def braces(self, body: str) -> list[str]:
        match = _NAME.match(body)
        if not match:
            return [UNKNOWN]
        name, rest = match.group(), body[match.end() :]
        if rest in ("", "[@]", "[*]"):
            return self.lookup(name)
        if rest[:2] in (":-", ":=") or rest[:1] in ("-", "="):
            values = self.values.get(name)
            if values and any(values):
                return values
            return [self.inner(rest[2:] if rest[0] == ":" else rest[1:])]
        if rest[:2] == ":+":
            return [self.inner(rest[2:])] if any(self.values.get(name, [])) else []
        return [UNKNOWN]

    def arithmetic(self) -> list[str]:
        end = self.text.find("))", self.at)
        if end < 0:
            raise self.fail("'$((' is not closed", self.at)
        body, self.at = self.text[self.at + 3 : end], end + 2
        body = re.sub(r"(?<![\w$])([A-Za-z_]\w*)", r"$\1", body)
        value = calculate(self.inner(body))
        return [UNKNOWN if value is None else str(value)]


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
    lexer = _Lexer(text, name, first_line)
    lexer.read()
    return Script(
        commands=tuple(lexer.commands),
        files=lexer.files,
        unknown=tuple(lexer.unknown),
        variables={k: " ".join(v) for k, v in lexer.values.items()},
    )
