"""Where a Python file differs from the one the plan emits, by what it says and not how it looks."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Iterator, Mapping

from planner.verify_settings import ABSENT, Difference

# Names in a file that are the user's. The others do what the plan says.
OWN_NAMES: Mapping[str, frozenset[str]] = {
    "train.py": frozenset({"batches", "train", "read", "arguments"}),
}
OWN_FILES = frozenset({"train_measure.py", "train_tiny.py"})  # no setting of the run is in them
OWN_KEYWORDS = frozenset(  # arguments, and keys of dictionaries, that are the user's
    {"lr", "betas", "eps", "weight_decay", "warmup_steps", "lr_scheduler", "dataloader"}
    | {"checkpoint", "metrics", "profiler", "profiling", "validator", "debug", "dump_folder"}
)
OWN_CALLS = frozenset({"print", "save_checkpoint", "save_pretrained", "log", "info"})


def python_differences(name: str, found: str, expected: str) -> Iterator[Difference]:
    """Definitions and constants of two Python files that differ.

    Raises
    ------
    SyntaxError
        If one does not parse.
    """
    left, right = items(found), items(expected)
    taken = {name for nodes in right.values() for node in nodes for name in _bound(node)}
    for key in dict.fromkeys((*right, *left)):
        mine, planned = left.get(key, []), right.get(key, [])
        if _dumps(mine) == _dumps(planned):
            continue
        own = name in OWN_FILES or key in OWN_NAMES.get(name, ())
        if not planned:
            own = own or all(_harmless(node, taken) for node in mine)
        elif mine and len(mine) == len(planned):
            own = own or _dumps(map(_without_own, mine)) == _dumps(map(_without_own, planned))
        own = own or key.startswith("if ") or (key.startswith("import ") and not mine)
        yield _difference(key, mine, planned, not own)


def _difference(
    key: str, mine: list[ast.stmt], planned: list[ast.stmt], decided: bool
) -> Difference:
    if mine and planned and len(mine) == len(planned) == 1:
        one, other = mine[0], planned[0]
        if isinstance(one, ast.Assign) and isinstance(other, ast.Assign):
            return Difference(key, ast.unparse(one.value), ast.unparse(other.value), decided)
        line = _first_line(_without_own(one) if decided else one, other)
        return Difference(key, f"differs from what the plan emits at line {line}", "", decided)
    if not planned:
        return Difference(key, f"line {mine[-1].lineno} is not what the plan emits", "", decided)
    found = f"{len(mine)} times, line {mine[-1].lineno}" if mine else ABSENT
    return Difference(key, found, "once", decided)


def items(text: str) -> dict[str, list[ast.stmt]]:
    """Top-level statements of a file by the name they bind, or by what they say."""
    out: dict[str, list[ast.stmt]] = {}
    for node in ast.parse(text).body:
        for key in _keys(node):
            out.setdefault(key, []).append(_without_docstrings(node))
    return out


def _keys(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return []  # a docstring
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        source = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
        return [f"import {source}{a.name}{f' as {a.asname}' * bool(a.asname)}" for a in node.names]
    if isinstance(node, ast.Assign) and all(isinstance(t, ast.Name) for t in node.targets):
        return [t.id for t in node.targets if isinstance(t, ast.Name)]
    if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test):
        return [f"if {ast.unparse(node.test)}"]
    return [ast.unparse(node).splitlines()[0]]


def _bound(node: ast.stmt) -> list[str]:
    """Names a top-level statement binds."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [a.asname or a.name.split(".")[0] for a in node.names]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else []
    return [t.id for t in targets if isinstance(t, ast.Name)]


def _harmless(node: ast.stmt, taken: set[str]) -> bool:
    """Whether an added statement binds new names only, or says something to the user."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        called = ast.unparse(node.value.func)
        return called.startswith("sys.path.") or called.rsplit(".", 1)[-1] in OWN_CALLS
    if isinstance(node, ast.Assign) and not all(isinstance(t, ast.Name) for t in node.targets):
        return False
    bound = set(_bound(node))
    return bool(bound) and not bound & (taken | {"*"})


def _dumps(nodes: Iterable[ast.stmt]) -> list[str]:
    """Statements without positions; the names of an import are keys already."""
    return ["import" if isinstance(n, ast.Import | ast.ImportFrom) else ast.dump(n) for n in nodes]


def _without_docstrings(node: ast.stmt) -> ast.stmt:
    for inner in ast.walk(node):
        if isinstance(inner, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(inner):
            inner.body = inner.body[1:] or [ast.Pass(lineno=inner.lineno, col_offset=0)]
    return node


def _without_own(node: ast.stmt) -> ast.stmt:
    """A copy of a statement without what is the user's in it."""
    stripped = _Own().visit(copy.deepcopy(node))
    return stripped if isinstance(stripped, ast.stmt) else ast.Pass(lineno=node.lineno)


class _Own(ast.NodeTransformer):
    """Leaves out the user's arguments, data loaders, messages and checkpoints."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        node.keywords = [k for k in node.keywords if k.arg not in OWN_KEYWORDS]
        return self.generic_visit(node)

    def visit_Dict(self, node: ast.Dict) -> ast.AST:
        pairs = zip(node.keys, node.values, strict=True)
        kept = [
            (k, v)
            for k, v in pairs
            if not (isinstance(k, ast.Constant) and k.value in OWN_KEYWORDS)
        ]
        node.keys, node.values = [k for k, _ in kept], [v for _, v in kept]
        return self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        targets = [t.id for t in node.targets if isinstance(t, ast.Name)]
        return None if targets == ["data"] else self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        if isinstance(node.value, ast.Call):
            called = ast.unparse(node.value.func).rsplit(".", 1)[-1]
            if called in OWN_CALLS:
                return None
        return self.generic_visit(node)


def _first_line(found: ast.stmt, expected: ast.stmt) -> int:
    """Line of the first statement of ``found`` that is not as in ``expected``. [-]"""
    ours = list(getattr(found, "body", []) or [])
    theirs = list(getattr(_without_own(expected), "body", [])) if ours else []
    for one, other in zip(ours, theirs, strict=False):
        if ast.dump(one) != ast.dump(other):
            inside = isinstance(getattr(one, "body", None), list) and type(one) is type(other)
            return _first_line(one, other) if inside else one.lineno
    if len(ours) > len(theirs):
        return int(ours[len(theirs)].lineno)
    return int(getattr(found, "lineno", 1))
