"""Names: which GPU or node a user means.

Case, ``-``, ``_``, spaces, the organisation, the vendor and the B of GB do not matter; the decimal
point does. A name that fits several entries is an error that lists them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping

_VENDORS = {"nvidia", "amd", "intel", "tesla", "geforce", "instinct"}
_CLOUDS = {"standard", "aws", "azure", "gcp", "oci", "lambda"}
_NOISE = _VENDORS | _CLOUDS


def normalise(name: str) -> str:
    """The form in which names are compared.

    >>> normalise("NVIDIA/A100-SXM4 80GB")
    'a100sxm480g'
    """
    return _join(_tokens(name))


def resolve(name: str, names: Mapping[str, Iterable[str]], what: str = "GPU") -> str | None:
    """Id of the entry called ``name``; None if there is none.

    ``names`` maps an id to every name of that entry. A whole name wins over the leading words of
    one (``p4d`` for ``p4d.24xlarge``).

    Raises
    ------
    ValueError
        If several entries fit equally well.
    """
    wanted = normalise(name)
    if not wanted:
        return None
    exact = {i for i, all_names in names.items() if wanted in {normalise(n) for n in all_names}}
    if wanted in {normalise(i) for i in exact}:
        exact = {i for i in exact if normalise(i) == wanted}
    fits = exact or {
        i for i, all_names in names.items() if any(wanted in _leading(n) for n in all_names)
    }
    if len(fits) > 1:
        raise ValueError(f"{what} {name!r} is ambiguous: it may be {', '.join(sorted(fits))}")
    return next(iter(fits), None)


def near(name: str, names: Mapping[str, Iterable[str]], count: int = 5) -> list[str]:
    """Ids whose names look most like ``name``, best first."""
    keys = {normalise(n): i for i, all_names in names.items() for n in all_names}
    close = difflib.get_close_matches(normalise(name), list(keys), n=3 * count, cutoff=0.5)
    return list(dict.fromkeys(keys[k] for k in close))[:count]


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
    return runs | {
        r.rsplit(".", n)[0] for r in (_join(tokens),) for n in range(1, r.count(".") + 1)
    }
