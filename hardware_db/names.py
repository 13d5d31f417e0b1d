"""Names: which GPU or node a user means.

Case, ``-``, ``_``, spaces, the organisation, the vendor and the B of GB do not matter; the decimal
point does. A name that fits several entries is an error that lists them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence

_VENDORS = {"nvidia", "amd", "intel", "tesla", "geforce", "instinct"}
_CLOUDS = {"standard", "aws", "azure", "gcp", "oci"}
_NOISE = _VENDORS | _CLOUDS

COUNT = re.compile(r"([-+]?[0-9.]*)\s*[x×*]\s*(.*)", re.IGNORECASE | re.DOTALL)
MIXED = re.compile(r"[+,;&]|\band\b|\bplus\b", re.IGNORECASE)


def normalise(name: str) -> str:
    """The form in which names are compared.

    >>> normalise("NVIDIA/A100-SXM4 80GB")
    'a100sxm480g'
    """
    return _join(_tokens(name))


def candidates(name: str, names: Mapping[str, Sequence[str]]) -> set[str]:
    """Ids of all entries ``name`` may mean.

    ``names`` maps an id to every name of that entry. An id wins over other names, a whole name
    over the leading words of one (``p4d`` for ``p4d.24xlarge``).
    """
    wanted = normalise(name)
    ids = {i for i in names if normalise(i) == wanted}
    whole = ids or {i for i, known in names.items() if wanted in map(normalise, known)}
    return whole or {i for i, known in names.items() if any(wanted in _leading(n) for n in known)}


def resolve(name: str, names: Mapping[str, Sequence[str]]) -> str | None:
    """Id of the entry called ``name``; None if there is none. A short name wins over aliases.

    Raises
    ------
    ValueError
        If several entries fit equally well; the message has the first name, the short one, of
        each.
    """
    fits = candidates(name, names)
    short = {i for i in fits if normalise(names[i][0]) == normalise(name)}
    fits = short if len(short) == 1 else fits
    if len(fits) > 1:
        listed = ", ".join(sorted(names[i][0] for i in fits))
        raise ValueError(f"{name!r} is ambiguous: it may be {listed}")
    return next(iter(fits), None)


def near(name: str, names: Mapping[str, Sequence[str]], count: int = 5) -> list[str]:
    """Short names of the entries whose names look most like ``name``, best first."""
    short = {normalise(n): known[0] for known in names.values() for n in known}
    close = difflib.get_close_matches(normalise(name), list(short), n=4 * count, cutoff=0.0)
    return list(dict.fromkeys(short[k] for k in close))[:count]


def writable(name: str) -> bool:
    """Whether ``--gpus`` can hold that name: it is not read as a count, a mixture or ``auto``.

    >>> writable("MyGPU"), writable("4xMine"), writable("A+B")
    (True, False, False)
    """
    key = normalise(name)
    return key not in ("", "auto") and not COUNT.fullmatch(name.strip()) and not MIXED.search(name)


def _tokens(name: str) -> list[str]:
    tokens = [t for t in re.split(r"[-_\s()]+", name.rsplit("/", 1)[-1].lower()) if t]
    while len(tokens) > 1 and tokens[0] in _NOISE:
        tokens = tokens[1:]
    return tokens


def _join(tokens: list[str]) -> str:
    return re.sub(r"(?<=\d)gi?b(?![a-z])", "g", "".join(tokens))


def _leading(name: str) -> set[str]:
    """Every proper run of leading words; the point also ends a word here."""
    tokens = _tokens(name)
    runs = {_join(tokens[:n]) for n in range(1, len(tokens))}
    whole = _join(tokens)
    return runs | {whole.rsplit(".", n)[0] for n in range(1, whole.count(".") + 1)}
