"""The words of a shell script: quotes, escapes and expansions."""

from __future__ import annotations

import re
from bisect import bisect_right

from planner.advisor.arithmetic import calculate
from planner.advisor.source import Unreadable
from planner.lint.document import Place

LONGEST = 1 << 16  # characters a variable may grow to
MOST_WORDS = 20_000
DEEPEST = 30  # expansions inside expansions
UNKNOWN = "\ufffd"  # stands for text only a run would give
NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_NAME = re.compile(NAME)
_ALL_OF = re.compile(rf'\$\{{({NAME})\[@\]\}}"')  # and the quote that closes


class Words:
    """A text read word by word from ``at``; ``values`` of variables are known, or ``unknown``."""

    def __init__(self, text: str, name: str, first_line: int = 1, depth: int = 0) -> None:
        self.text, self.name, self.first, self.depth = text, name, first_line, depth
        self.at = 0
        self.starts = [0, *(i + 1 for i, c in enumerate(text) if c == "\n")]
        self.values: dict[str, list[str]] = {}
        self.unknown: dict[str, None] = {}

    def place(self, at: int) -> Place:
        line = bisect_right(self.starts, at)
        return Place(line + self.first - 1, at - self.starts[line - 1] + 1)

    def fail(self, reason: str, at: int) -> Unreadable:
        place = self.place(min(at, len(self.text)))
        return Unreadable(self.name, reason, place.line, place.column)

    def skip_line(self) -> None:
        """Up to the end of the line."""
        end = self.text.find("\n", self.at)
        self.at = len(self.text) if end < 0 else end

    def take_line(self) -> str:
        """The rest of the line; what follows it comes next."""
        start = self.at
        self.skip_line()
        line = self.text[start : self.at]
        self.at = min(self.at + 1, len(self.text))
        return line

    def inner(self, text: str) -> str:
        """Text with its expansions done, as inside double quotes."""
        if self.depth > DEEPEST:
            raise self.fail(f"expansions nested deeper than {DEEPEST}", self.at)
        inside = Words(text, self.name, 1, self.depth + 1)
        inside.values, inside.unknown = self.values, self.unknown
        return "".join(inside.quoted(len(text)))

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
        match = _ALL_OF.match(self.text, self.at)
        if match and match.group(1) in self.values:
            values = self.values[match.group(1)]
            self.at = match.end()
            if values:
                parts[-1] += values[0]
                parts += values[1:]
        else:
            parts[-1] += "".join(self.quoted())

    def array(self) -> list[str]:
        """The words between brackets, from the one that opens."""
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
                self.skip_line()
            elif char in ";&|(<>":
                self.at += 1
            else:
                out += self.expand_word()
            if len(out) > MOST_WORDS:
                raise self.fail(f"an array of over {MOST_WORDS} words", start)
        raise self.fail("'(' is not closed", start)

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
