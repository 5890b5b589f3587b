"""Edits of a function's syntax tree that plant a small fault.

Each finds the place that it changes by a name there: a field of a record, a variable, a function or a number.
Formatting and all other names do not matter. An edit fails where it finds no place, or more than it expects.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

Change = Callable[[ast.FunctionDef], None]


def expression(source: str) -> ast.expr:
    """Return an expression's tree."""
    return ast.parse(source, mode="eval").body


def is_called(node: ast.AST, name: str) -> bool:
    """Whether a node is a variable, field or number of that name."""
    match node:
        case ast.Attribute(attr=own) | ast.Name(id=own):
            return own == name
        case ast.Constant(value=value):
            return repr(value) == name
    return False


def mentions(node: ast.AST, name: str) -> bool:
    """Whether anything within a node has that name."""
    return any(is_called(inner, name) for inner in ast.walk(node))


def everywhere(rewrite: Callable[[ast.AST], ast.AST | None], places: int = 1) -> Change:
    """Return the edit that replaces the nodes for which `rewrite` returns another: as many as `places`."""

    class Rewriter(ast.NodeTransformer):
        places = 0

        def visit(self, node: ast.AST) -> ast.AST:
            replacement = rewrite(node)
            if replacement is None:
                return self.generic_visit(node)
            self.places += 1
            return replacement

    def change(definition: ast.FunctionDef) -> None:
        rewriter = Rewriter()
        rewriter.visit(definition)
        assert rewriter.places == places, f"{definition.name} has {rewriter.places} such places"

    return change


def without_operand(name: str, places: int = 1) -> Change:
    """a + name → a, a - name → a, a * name → a."""

    def rewrite(node: ast.AST) -> ast.AST | None:
        match node:
            case ast.BinOp(left=left, right=right) if is_called(right, name):
                return left
            case ast.BinOp(left=left, right=right) if is_called(left, name):
                return right
        return None

    return everywhere(rewrite, places)


def one_more_than(name: str) -> Change:
    """a + name → a + name + 1."""

    def rewrite(node: ast.AST) -> ast.AST | None:
        match node:
            case ast.BinOp(left=left, right=right) if is_called(left, name) or is_called(right, name):
                return ast.BinOp(node, ast.Add(), ast.Constant(1))
        return None

    return everywhere(rewrite)


def only_argument(name: str) -> Change:
    """max(name, other) → name."""

    def rewrite(node: ast.AST) -> ast.AST | None:
        if isinstance(node, ast.Call) and is_called(node.func, "max"):
            return next((argument for argument in node.args if is_called(argument, name)), None)
        return None

    return everywhere(rewrite)


def compared(name: str, operator: type[ast.cmpop]) -> Change:
    """name < other → name <= other, for instance."""

    def rewrite(node: ast.AST) -> ast.AST | None:
        match node:
            case ast.Compare(left=left, comparators=[right]) if is_called(left, name) or is_called(
                right, name
            ):
                return ast.Compare(left, [operator()], [right])
        return None

    return everywhere(rewrite)


def assigned(name: str, value: str) -> Change:
    """name = anything → name = value."""

    def rewrite(node: ast.AST) -> ast.AST | None:
        match node:
            case ast.Assign(targets=[target]) if is_called(target, name):
                return ast.Assign([target], expression(value))
        return None

    return everywhere(rewrite)


def added(name: str, value: str) -> Change:
    """name += anything → name += value, and so with the other operators."""

    def rewrite(node: ast.AST) -> ast.AST | None:
        match node:
            case ast.AugAssign(target=target, op=operator) if is_called(target, name):
                return ast.AugAssign(target, operator, expression(value))
        return None

    return everywhere(rewrite)


def otherwise(name: str) -> Change:
    """a if name else b → b."""

    def rewrite(node: ast.AST) -> ast.AST | None:
        if isinstance(node, ast.IfExp) and is_called(node.test, name):
            return node.orelse
        return None

    return everywhere(rewrite)


def without_condition(name: str) -> Change:
    """name and a and b → a and b."""

    def rewrite(node: ast.AST) -> ast.AST | None:
        if isinstance(node, ast.BoolOp) and any(mentions(value, name) for value in node.values):
            others = [value for value in node.values if not mentions(value, name)]
            return ast.BoolOp(node.op, others) if len(others) > 1 else others[0]
        return None

    return everywhere(rewrite)


def replaced(old: str, new: str) -> Change:
    """One expression → another, however it is formatted."""
    pattern = ast.dump(expression(old))

    def rewrite(node: ast.AST) -> ast.AST | None:
        return expression(new) if isinstance(node, ast.expr) and ast.dump(node) == pattern else None

    return everywhere(rewrite)


def body(call: str) -> Change:
    """Whatever the function does → this call."""

    def change(definition: ast.FunctionDef) -> None:
        definition.body = [ast.Expr(expression(call))]

    return change
