"""Shell integer arithmetic, without the shell."""

from __future__ import annotations

import re

_TOKEN = re.compile(r"\s*(?:(\d{1,18})|(\*\*|[-+*/%()]))")


def calculate(text: str) -> int | None:
    """Shell integer arithmetic with + - * / % and parentheses; None for anything else.

    >>> calculate("4 * (2 + 6)"), calculate("1 / 0"), calculate("a + 1")
    (32, None, None)
    """
    tokens: list[str] = []
    at = 0
    text = text.strip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if not match or len(tokens) > 100:
            return None
        tokens.append(match.group(1) or match.group(2))
        at = match.end()
    try:
        value, rest = _sum(tokens, 0)
    except (IndexError, ValueError, ZeroDivisionError):
        return None
    return value if rest == len(tokens) and abs(value) < 1 << 62 else None


def _sum(tokens: list[str], at: int) -> tuple[int, int]:
    value, at = _product(tokens, at)
    while at < len(tokens) and tokens[at] in "+-":
        right, end = _product(tokens, at + 1)
        value = value + right if tokens[at] == "+" else value - right
        at = end
    return value, at


def _product(tokens: list[str], at: int) -> tuple[int, int]:
    value, at = _atom(tokens, at)
    while at < len(tokens) and tokens[at] in ("*", "/", "%"):
        right, end = _atom(tokens, at + 1)
        if tokens[at] == "*":
            value *= right
        else:  # the shell truncates toward zero
            quotient = abs(value) // abs(right) * (1 if value * right >= 0 else -1)
            value = quotient if tokens[at] == "/" else value - quotient * right
        at = end
    return value, at


def _atom(tokens: list[str], at: int) -> tuple[int, int]:
    if tokens[at] == "-":
        value, at = _atom(tokens, at + 1)
        return -value, at
    if tokens[at] == "(":
        value, at = _sum(tokens, at + 1)
        if tokens[at] != ")":
            raise ValueError
        return value, at + 1
    return int(tokens[at]), at + 1
