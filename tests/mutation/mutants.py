"""Small changes of a source file: each mutant is the file with one comparison, sign, bound, `not` or constant changed.

In: a Python file. Out: its mutants in the order of the file, and the syntax tree of each. What is no behaviour that a
unit test judges is left alone: annotations, decorators, class options, asserts, raised errors and the texts of
f-strings.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any", "ceil": "floor", "floor": "ceil"} | {
    "minimum": "maximum",
    "maximum": "minimum",
}
_LEFT_ALONE = {"annotation", "returns", "decorator_list"}
_NO_BEHAVIOUR = (ast.JoinedStr, ast.Assert, ast.Raise, ast.Import, ast.ImportFrom)
_CHECKED_OPTIONS = {"strict", "maxsize", "exc_info", "stacklevel"}
_SHOWN_PARENTS = (ast.expr, ast.keyword, ast.Return, ast.Assign, ast.AnnAssign)
_LONG, _CONTEXT = 120, 40
_TESTED = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)


@dataclass(frozen=True)
class Mutant:
    """One change. `number` is its place in the file, `line` where it is, `lines` those of its statement (of the head only,
    where others stand inside it), `function` the outermost function that it is in ("" for none).
    """

    path: Path
    number: int
    line: int
    lines: range
    scope: str
    function: str
    change: str

    def key(self, root: Path) -> str:
        """Return the name of the change that does not depend on line numbers."""
        return f"{self.path.relative_to(root)} {self.scope or '<module>'}: {self.change}"

    def line_of(self, result: str, root: Path) -> str:
        """Return the line by which a run reports it."""
        return f"{self.path.relative_to(root)}:{self.line}: {result}: {self.scope or '<module>'}: {self.change}"


@dataclass(frozen=True)
class _Site:
    """A node that can be changed, and how to reach it from its parent."""

    parent: ast.AST
    field: str
    index: int | None
    node: ast.AST
    statement: ast.stmt
    scope: str
    function: str

    def put(self, node: ast.AST) -> None:
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


def mutants_of(path: Path) -> list[Mutant]:
    """Return all mutants of a file."""
    tree = ast.parse(path.read_text())
    seen: Counter[tuple[str, str]] = Counter()
    mutants: list[Mutant] = []
    for site, variant in _changes(tree):
        change = _described(site, variant)
        seen[site.scope, change] += 1
        if seen[site.scope, change] > 1:
            change += f" #{seen[site.scope, change]}"
        line = getattr(site.node, "lineno", site.statement.lineno)
        mutants.append(Mutant(path, len(mutants), line, _lines(site.statement), site.scope, site.function, change))
    return mutants


def mutated(mutant: Mutant) -> ast.Module:
    """Return the file's syntax tree with that change."""
    tree = ast.parse(mutant.path.read_text())
    for number, (site, variant) in enumerate(_changes(tree)):
        if number == mutant.number:
            site.put(ast.copy_location(variant, site.node))
            return ast.fix_missing_locations(tree)
    raise IndexError(f"{mutant.path} has no mutant {mutant.number}")


def bodies_of(path: Path) -> dict[str, range]:
    """Return the lines of each outermost function's body, without its head."""
    found: dict[str, range] = {}

    def collect(statements: list[ast.stmt], scope: str) -> None:
        for node in statements:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                found[f"{scope}{node.name}"] = range(node.body[0].lineno, (node.end_lineno or node.lineno) + 1)
            elif isinstance(node, ast.ClassDef):
                collect(node.body, f"{scope}{node.name}.")

    collect(ast.parse(path.read_text()).body, "")
    return found


def _lines(statement: ast.stmt) -> range:
    body = getattr(statement, "body", None)
    end = body[0].lineno if body else (statement.end_lineno or statement.lineno) + 1
    return range(statement.lineno, max(end, statement.lineno + 1))


def _described(site: _Site, variant: ast.AST) -> str:
    """Return the smallest expression that shows the change, before and after."""
    shown = site.node
    if isinstance(shown, (ast.Constant, *_TESTED)) and isinstance(site.parent, _SHOWN_PARENTS):
        shown = site.parent
    before = ast.unparse(shown)
    site.put(ast.copy_location(variant, site.node))
    after = ast.unparse(variant if shown is site.node else shown)
    site.put(site.node)
    return _shortened(" ".join(before.split()), " ".join(after.split()))


def _shortened(before: str, after: str) -> str:
    """Return both texts; of long ones the place where they differ."""
    if len(before) > _LONG:
        start = next((place for place, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]), 0)
        first = max(0, start - _CONTEXT)
        before, after = (text[first : start + _CONTEXT] for text in (before, after))
    return f"{before} -> {after}"


def _changes(tree: ast.Module) -> Iterator[tuple[_Site, ast.AST]]:
    for site in list(_sites(tree, ast.Pass(lineno=1, end_lineno=1), "", "")):
        for variant in _variants(site):
            yield site, variant


def _sites(node: ast.AST, statement: ast.stmt, scope: str, function: str) -> Iterator[_Site]:
    for field, value in ast.iter_fields(node):
        if field in _LEFT_ALONE or (field == "keywords" and isinstance(node, ast.ClassDef)):
            continue
        inner_scope, inner_function = scope, function
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and field == "body":
            inner_scope = f"{scope}.{node.name}" if scope else node.name
            if not function and not isinstance(node, ast.ClassDef):
                inner_function = inner_scope
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(child, ast.AST) or isinstance(child, _NO_BEHAVIOUR):
                continue
            if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
                continue
            if isinstance(child, ast.keyword) and child.arg in _CHECKED_OPTIONS:
                continue
            inner = child if isinstance(child, ast.stmt) else statement
            yield _Site(node, field, index, child, inner, inner_scope, inner_function)
            yield from _sites(child, inner, inner_scope, inner_function)


def _variants(site: _Site) -> Iterator[ast.AST]:
    """Yield the nodes that replace the site's."""
    node = site.node
    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            for other in _COMPARISONS[type(operator)]:
                changed = copy.copy(node)
                changed.ops = [*node.ops[:place], other(), *node.ops[place + 1 :]]
                yield changed
    elif isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in _OPERATORS:
        if isinstance(node.op, ast.BitOr) and not site.function:
            return  # a union of types
        operation = copy.copy(node)
        operation.op = _OPERATORS[type(node.op)]()
        yield operation
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
        yield node.operand
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield ast.Constant(not node.value)
        elif isinstance(node.value, (int, float)):
            yield ast.Constant(node.value + 1)
    elif isinstance(node, (ast.Break, ast.Continue)):
        yield ast.Continue() if isinstance(node, ast.Break) else ast.Break()
    elif isinstance(node, (ast.Name, ast.Attribute)) and site.field == "func":
        name = node.id if isinstance(node, ast.Name) else node.attr
        if name in _FUNCTIONS:
            renamed = copy.copy(node)
            setattr(renamed, "id" if isinstance(node, ast.Name) else "attr", _FUNCTIONS[name])
            yield renamed
    if isinstance(node, _TESTED) and (site.field == "test" or (site.field == "ifs")):
        yield ast.UnaryOp(ast.Not(), node)
