"""What the report says first."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest

from railopt.report import nodes
from railopt.report.rows import newest
from railopt.report.verdict import asked, at_most, verdict


def row(policy: str, gap: str, seed: int = 0, **more: Any) -> dict[str, Any]:
    instance = {
        "nodes": 2,
        "rails": 2,
        "traffic": "moe",
        "chunk": "1MiB",
        "policy": policy,
        "seed": seed,
        "link": "400Gb/s",
        "degrade": "",
        "gpus": None,
    }
    proved = gap == "0"
    known = {"optimum": "known" if proved else "open", "optimal": proved}
    value = str(1 + Fraction(gap))
    made = {"instance": instance, "gap": gap, "bound": "1", "value": value, "started": 0.0}
    return {**made, **known, **more}


def test_the_closest_and_lpt_beside_it() -> None:
    rows = [row("lpt", "1/3"), row("equitable", "0"), row("lpt", "1/2", 1)]
    rows += [row("equitable", "1/100", 1)]
    assert verdict(rows) == (
        "equitable is the closest of 2 policies: it is at most 1 % above the best possible plan in "
        "its 2 instances and optimal in 1; lpt is at most 50 % above the best possible plan "
        "in its 2 instances and optimal in 0; the best possible time itself is open in 1 of "
        "2 problems."
    )


def test_one_problem_is_one_however_often_it_was_solved() -> None:
    first, second = row("lpt", "1/3"), row("lpt", "0", started=1.0)
    second["instance"] = {**second["instance"], "limit_s": 1.0, "threads": 2}
    assert verdict(newest([second, first])) == (
        "lpt is optimal in its 1 instances; the best possible time itself is open in 0 of 1 "
        "problems."
    )


def test_gaps_are_to_the_best_bound_of_their_problem() -> None:
    """By the other policy's bound lpt is optimal, and with it the optimum is known."""
    loose = row("lpt", "1/9", value="100", bound="90")
    tight = row("lpt-local", "1/20", value="105", bound="100")
    rows = newest([loose, tight])
    assert [(r["bound"], r["gap"], r["optimum"]) for r in rows] == [
        ("100", "0", "known"),
        ("100", "1/20", "known"),
    ]
    assert verdict(rows).startswith("lpt is the closest of 2 policies: it is optimal")
    assert verdict(rows).endswith("is open in 0 of 1 problems.")


def test_what_an_older_row_proved_stays_known() -> None:
    long, short = row("lpt", "1/9", optimum="known"), row("lpt", "1/4", bound="8/9", started=1.0)
    (kept,) = newest([long, short])
    assert (kept["started"], kept["bound"], kept["optimum"]) == (1.0, "1", "known")


def test_a_policy_that_missed_a_problem_is_not_the_closest() -> None:
    rows = [row("lpt", "1/3"), row("lpt", "1/3", 1), row("equitable", "0")]
    assert verdict(rows).startswith("lpt is at most 33.4 % above")


def test_a_solvers_word_is_said_to_be_one() -> None:
    assert "a solver's word in 1" in verdict([row("lpt", "1/3", optimum="claimed")])


def test_nothing_is_nothing() -> None:
    assert "nothing can be said" in verdict([])


def test_all_optimal() -> None:
    assert verdict([row("mine:f", "0")]).startswith("mine:f is optimal in its 1 instances;")


@pytest.mark.parametrize(
    ("gap", "text"),
    [
        ("0", "0"),
        ("1/3", "33.4"),
        ("1/1000000", "0.0001"),
        ("2/3000000", "0.0000667"),
        ("12345/1000", "1240"),
    ],
)
def test_at_most_never_rounds_down(gap: str, text: str) -> None:
    assert at_most(Fraction(gap)) == text
    assert Fraction(text) >= Fraction(gap) * 100


def test_what_was_asked() -> None:
    rows = [row("lpt", "0", seed) for seed in range(20)] + [row("equitable", "0")]
    found = dict(asked(rows))
    assert found["policies"] == "lpt, equitable"
    assert found["seeds"].endswith("14, 15 and 4 more")
    assert "slow or dead NICs" not in found


def loaded(policy: str = "lpt", **more: Any) -> dict[str, Any]:
    loads = {"send": [[10**9, 2 * 10**9], [0, 0]], "recv": [[0, 0], [10**9, 2 * 10**9]]}
    return row(policy, "0", bound="1/25", loads=loads, **more)


def carried(page: str) -> Any:
    return json.loads(page.split('id="view-data">')[1].split("</script>")[0])


def test_one_nodes_nics_are_multiples_of_the_bound() -> None:
    (plan,) = carried(nodes.node_view([loaded()]))["plans"]
    assert plan["sent"] == [[0.5, 1.0], [0, 0]]
    assert plan["received"] == [[0, 0], [0.5, 1.0]]


def test_a_slow_nic_takes_longer_and_a_dead_one_has_no_time() -> None:
    slow = loaded()
    slow["instance"]["degrade"] = "0:0=1/2,1:1=0"
    (plan,) = carried(nodes.node_view([slow]))["plans"]
    assert plan["sent"][0] == [1.0, 1.0]
    assert plan["received"][1] == [0.5, None]


def test_no_more_plans_than_a_page_carries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "MAX_NUMBERS", 20)
    page = nodes.node_view([loaded(f"p{i}") for i in range(5)])
    assert len(carried(page)["plans"]) == 2
    assert "3 plans more are in the results alone" in page


def test_data_does_not_end_its_element() -> None:
    hostile = "</script><script>alert(1)</script>"
    page = nodes.node_view([loaded(hostile)])
    assert page.count("</script>") == 1
    assert carried(page)["plans"][0]["policy"] == hostile


def test_without_loads_there_is_no_view() -> None:
    assert nodes.node_view([row("lpt", "0")]) == ""
