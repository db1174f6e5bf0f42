"""The form of the code: short functions of few parameters, array types defined once."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator

import pytest

from tests.trees import ROOT, nodes, trees

MAX_PARAMETERS, MAX_LINES = 8, 60


def _functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every function of railopt, at any depth, with where it stands."""
    for path, found in nodes().items():
        for node in found:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", node


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How many parameters a caller may think about: self and cls are none."""
    a = function.args
    names = [arg.arg for arg in (*a.posonlyargs, *a.args, *a.kwonlyargs)]
    names += [arg.arg for arg in (a.vararg, a.kwarg) if arg is not None]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """From `def` to the last line, the docstring included."""
    return (function.end_lineno or 0) - function.lineno + 1


@pytest.mark.slow
def test_no_function_has_many_parameters_or_lines() -> None:
    wrong = [
        f"{at}: {parameters(f)} parameters, {lines(f)} lines"
        for at, f in _functions()
        if parameters(f) > MAX_PARAMETERS or lines(f) > MAX_LINES
    ]
    assert wrong == []


def test_the_two_counts_see_what_they_should() -> None:
    tree = ast.parse("def f(self, a, /, b, *c, d, **e):\n    pass\n\n\ndef g():\n    pass\n")
    f, g = tree.body
    assert isinstance(f, ast.FunctionDef)
    assert isinstance(g, ast.FunctionDef)
    assert (parameters(f), lines(f), parameters(g)) == (5, 2, 0)


def test_array_types_are_defined_once() -> None:
    """`Ints = npt.NDArray[...]` stands in railopt/base/arrays.py alone."""
    wrong = []
    for path, tree in trees().items():
        if path == ROOT / "base" / "arrays.py":
            continue
        for node in tree.body:
            value = getattr(node, "value", None)
            if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(value, ast.Subscript):
                text = ast.unparse(value)
                if text.startswith(("npt.NDArray[", "numpy.typing.NDArray[", "NDArray[")):
                    wrong.append(f"{path.relative_to(ROOT)}:{node.lineno} {ast.unparse(node)}")
    assert wrong == []


def test_no_file_is_named_for_its_technique() -> None:
    """`kernels.py` makes kernels; no room hides its loops in a file of that name."""
    assert [str(path.relative_to(ROOT)) for path in ROOT.rglob("kernels.py")] == ["base/kernels.py"]


def test_every_class_has_a_name_of_its_own() -> None:
    where: dict[str, list[str]] = {}
    for path, found in nodes().items():
        for node in found:
            if isinstance(node, ast.ClassDef):
                where.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: files for name, files in where.items() if len(files) > 1} == {}


def test_value_and_bound_are_kept_in_a_bracket() -> None:
    """A result is a `Bracket` and a subject.  The checker knows no bracket, a `Race` changes
    both, its `Progress` has neither at first, and a `MovedBound` is a line of prices.
    """
    both = {
        node.name
        for tree in trees().values()
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        and {"value", "bound"}
        <= {ast.unparse(field.target) for field in node.body if isinstance(field, ast.AnnAssign)}
    }
    assert both == {"Bracket", "Certificate", "Claim", "MovedBound", "Progress", "Race", "Verdict"}


def test_proved_is_a_word_of_certificates_and_theorems() -> None:
    """Of a plan it is `optimal`, of an optimum `known`."""
    certificates = {"checker.py", "evidence/certificate.py", "symbolic/search/counterexamples.py"}
    older_rows = {"report/rows.py"}
    found = {
        str(path.relative_to(ROOT))
        for path, listed in nodes().items()
        if "proved" in path.read_text()
        for node in listed
        if "proved"
        in [getattr(node, name, None) for name in ("id", "attr", "arg", "name", "value")]
        and "statements" not in path.parts
    }
    assert found == certificates | older_rows


THING = (
    r"bits|buffers?|bytes|chunks?|copies|counter|DONE|entry|experts?|factor|files?|GB/s|GPUs?|"
    r"host|jobs|lines?|links|list|mark|module|moves|NICs?|number|once|one|pairs?|path|peer|ports?|"
    r"process|rails?|receivers|records?|replicas|rows?|s|\w*seconds|senders|slots|stages|thread|"
    r"tokens?|units|values?|words?"
)
SHARER = (
    r"batch|centre|chunk|column|command|connection|copy|destination|expert|file|flow|GPU|inch|"
    r"instance|iteration|job|layer|level|line|link|message|micro-batch|minute|NIC|node|owner|pair|"
    r"peer|policy|port|problem|process|rail|rank|receiver|request|round|row|second|sender|server|"
    r"side|size|stage|step|theorem|token|unit|word|worker|writer"
)
NOT_PER = (  # "how many GPUs a node has" speaks of a node
    r"alone|and its|as|at|by|can|can't|carries|for|gets?|had|hangs|has|holds?|in|is|makes|may|must|"
    r"needs?|of|on|once|reads?|sends?|takes?|that|to|twice|waits|which|whose|with|would"
)
PER = re.compile(rf"\b({THING})\s+an?\s+({SHARER})\b(?!\s+({NOT_PER})\b)(?!')")


def test_what_each_of_many_has_is_said_with_per() -> None:
    """ "NICs per node", never "NICs a node"."""
    assert PER.search("two NICs a node, in rail order")
    assert PER.search("one hashed path a flow")
    assert not PER.search("how many NICs a node has")
    wrong = [
        f"{path.relative_to(ROOT)}: {found[0]!r}"
        for path in trees()
        for found in PER.finditer(path.read_text())
    ]
    assert wrong == []


def test_public_functions_answer_with_a_value_or_one_of_few_results() -> None:
    """docs/architecture.md lists the kinds of result that users meet."""
    import railopt

    values = {"Plan", "Schedule", "Tokens", "Traffic"}
    answers = [
        str(inspect.signature(made).return_annotation)
        for made in (getattr(railopt, name) for name in railopt.__all__)
        if inspect.isfunction(made)
    ]
    kinds = set(re.findall(r"[A-Z]\w+", " ".join(answers))) - values
    said = (ROOT.parent / "docs/architecture.md").read_text()
    listed = said.partition("Functions of `railopt` itself return")[2].partition("\n")[0]
    assert kinds <= set(re.findall(r"`(\w+)`", listed))
    assert 3 <= len(kinds) <= 6


def test_kernels_sort_stably() -> None:
    """Of equal keys numpy and compiled code may put either first."""
    wrong = [
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for path, listed in nodes().items()
        for node in listed
        if isinstance(node, ast.FunctionDef)
        and {ast.unparse(d).partition("(")[0] for d in node.decorator_list} & {"kernel", "part"}
        for call in ast.walk(node)
        if isinstance(call, ast.Call)
        and ast.unparse(call.func).endswith("argsort")
        and not any(word.arg == "kind" for word in call.keywords)
    ]
    assert wrong == []
