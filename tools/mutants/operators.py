"""Semantic mutants of a module's source: each is one rule taken away. Pure: source in, code objects
out.

A mutant lives in one function. It is named by what it says in the source and not by a line number,
so that a list of equivalent mutants stays true when code moves.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from types import CodeType

COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
JOINED: dict[type[ast.operator], type[ast.operator]] = {
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
EXTREME = {"max": "min", "min": "max", "any": "all", "all": "any"}
LEAVES = (ast.Return, ast.Continue, ast.Break, ast.Raise)
SAID = frozenset({"log"})
"""Calls that only tell an operator something."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Mutant:
    """One rule taken away. `function`: the qualified name of the outermost function that holds
    it.
    """

    module: str
    function: str
    operator: str
    source: str
    """The place, as it stands."""
    line: int
    repetition: int = 0
    """The same words occur in the same function: the first is 0."""

    @property
    def key(self) -> str:
        """The same in every run, and after unrelated changes of the module."""
        again = f" #{self.repetition + 1}" if self.repetition else ""
        return f"{self.module}:{self.function}: {self.operator}: {self.source}{again}"


class _Sites(ast.NodeTransformer):
    """Visits every place in one order; changes the one whose number is `chosen`."""

    def __init__(self, chosen: int = -1) -> None:
        self.chosen, self.count = chosen, 0
        self.found: list[tuple[str, str, int]] = []

    def _site(self, operator: str, node: ast.AST, place: str = "") -> bool:
        self.found.append((operator, place or _said(node), getattr(node, "lineno", 0)))
        self.count += 1
        return self.count - 1 == self.chosen

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.Assert):
            return node
        for name in ("body", "orelse", "finalbody"):
            statements = getattr(node, name, None)
            if isinstance(statements, list) and not isinstance(node, ast.ClassDef):
                self._swap(statements)
        return super().generic_visit(node)

    def _body_only(self, node: Function) -> ast.AST:
        """Neither annotations nor decorators are rules."""
        kept = node.args, node.returns, node.decorator_list
        node.args, node.returns, node.decorator_list = (
            ast.arguments([], [], None, [], [], None, []),
            None,
            [],
        )
        self.generic_visit(node)
        node.args, node.returns, node.decorator_list = kept
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._body_only(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._body_only(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is not None:
            node.value = self.visit(node.value)
        return node

    def _swap(self, statements: list[ast.stmt]) -> None:
        for i, (first, second) in enumerate(pairwise(statements)):
            is_pair = _is_call(first) and _is_call(second)
            if is_pair and self._site("order swapped", first, f"{_said(first)} / {_said(second)}"):
                statements[i], statements[i + 1] = second, first
                return

    def visit_If(self, node: ast.If) -> ast.AST:
        guard = isinstance(node.body[-1], LEAVES) and not node.orelse
        if self._site(
            "guard removed" if guard else "branch never taken", node, f"if {_said(node.test)}"
        ):
            node.test = ast.copy_location(ast.Constant(False), node.test)
            return node
        if not guard and self._site("condition dropped", node, f"if {_said(node.test)}"):
            node.test = ast.copy_location(ast.Constant(True), node.test)
            return node
        return self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        if _is_call(node) and not _is_said(node) and self._site("call skipped", node):
            return ast.copy_location(ast.Pass(), node)
        return self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        kept = all(isinstance(t, ast.Attribute | ast.Subscript | ast.Tuple) for t in node.targets)
        if kept and not _binds_names(node) and self._site("assignment skipped", node):
            return ast.copy_location(ast.Pass(), node)
        return self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        if self._site("assignment skipped", node):
            return ast.copy_location(ast.Pass(), node)
        other = JOINED.get(type(node.op))
        if other is not None and self._site("join changed", node):
            node.op = other()
            return node
        return self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        for i, operand in enumerate(node.values):
            if self._site("condition dropped", node, f"{_said(operand)} of {_said(node)}"):
                rest = [v for j, v in enumerate(node.values) if j != i]
                return (
                    rest[0]
                    if len(rest) == 1
                    else ast.copy_location(ast.BoolOp(node.op, rest), node)
                )
        return self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        # whether there is anything at all is a guard of its own, and is removed as such
        is_absence = (
            isinstance(node.comparators[0], ast.Constant) and node.comparators[0].value is None
        )
        if len(node.ops) == 1 and not is_absence and self._site("boundary moved", node):
            node.ops = [COMPARED[type(node.ops[0])]()]
            return node
        return self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        if isinstance(node.op, ast.Not) and self._site("condition reversed", node):
            return node.operand
        return self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        if self._site("condition reversed", node):
            node.body, node.orelse = node.orelse, node.body
            return node
        return self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        other = JOINED.get(type(node.op))
        if other is not None and self._site("join changed", node):
            node.op = other()
            return node
        one = isinstance(node.right, ast.Constant) and node.right.value == 1
        if one and isinstance(node.op, ast.Add | ast.Sub) and self._site("off by one", node):
            return node.left
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if (
            isinstance(node.func, ast.Name)
            and node.func.id in EXTREME
            and self._site("join changed", node)
        ):
            node.func = ast.copy_location(ast.Name(EXTREME[node.func.id], ast.Load()), node.func)
            return node
        if isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            return node
        return self.generic_visit(node)


def _said(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 110 else text[:107] + "..."


def _is_call(node: ast.stmt) -> bool:
    if not isinstance(node, ast.Expr):
        return False
    value = node.value.value if isinstance(node.value, ast.Await) else node.value
    return isinstance(value, ast.Call)


def _is_said(node: ast.Expr) -> bool:
    value = node.value
    return (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in SAID
    )


def _binds_names(node: ast.Assign) -> bool:
    return any(
        isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)
        for t in node.targets
        for x in ast.walk(t)
    )


def _functions(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    """The outermost functions and the methods of classes."""
    for node in tree.body:
        if isinstance(node, Function):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, Function) and not _is_setter(inner):
                    yield f"{node.name}.{inner.name}", inner


def _is_setter(function: Function) -> bool:
    return any(isinstance(d, ast.Attribute) and d.attr == "setter" for d in function.decorator_list)


def mutants_of(module: str, source: str) -> list[Mutant]:
    """Every mutant of a module, in the order of the source."""
    found: list[Mutant] = []
    for name, function in _functions(ast.parse(source)):
        sites = _Sites()
        sites.visit(function)
        seen: Counter[tuple[str, str]] = Counter()
        for operator, place, line in sites.found:
            found.append(Mutant(module, name, operator, place, line, seen[operator, place]))
            seen[operator, place] += 1
    return found


def code_of(mutant: Mutant, source: str, file: str) -> CodeType:
    """The function's code with this mutation. Raises LookupError if the source does not have it."""
    tree = ast.parse(source)
    for name, function in _functions(tree):
        if name != mutant.function:
            continue
        plain = [m for m in mutants_of(mutant.module, source) if m.function == name]
        number = next((i for i, m in enumerate(plain) if m.key == mutant.key), None)
        if number is None:
            break
        changed = _Sites(number).visit(function)
        assert changed is function
        ast.fix_missing_locations(tree)
        return _find(compile(tree, file, "exec", dont_inherit=True), mutant.function.split("."))
    raise LookupError(f"there is no {mutant.key}")


def _find(code: CodeType, path: list[str]) -> CodeType:
    for name in path:
        code = next(c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == name)
    return code
