"""The proved program of T8a, extracted to OCaml, and the kernel that runs: the same numbers on
random traffic.
"""

import subprocess
from pathlib import Path

import numpy as np
import pytest

from railopt.base.arrays import Ints
from railopt.base.dice import Dice
from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric
from railopt.policies import plan
from railopt.symbolic.coq import build as coq

EXTRACT = """
From Coq Require Import Extraction ExtrOcamlBasic ExtrOcamlNatInt.
From Rails Require Import Halving.
Extraction Language OCaml.
Extraction "equitable.ml" rail_counts.
"""
DRIVER = """
let number () = Scanf.scanf " %d" (fun n -> n)
let () =
  for _ = 1 to number () do
    let nodes = number () in
    let rails = number () in
    let counts = Array.init nodes (fun _ -> Array.init nodes (fun _ -> number ())) in
    let parts = Equitable.rail_counts nodes rails (fun i j -> counts.(i).(j)) in
    List.iter (fun part ->
      for i = 0 to nodes - 1 do
        for j = 0 to nodes - 1 do Printf.printf "%d " (part i j) done
      done) parts;
    print_newline ()
  done
"""


@pytest.fixture(scope="module")
def program(theory: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Counts of chunks in, counts of every rail out; see DRIVER."""
    folder = tmp_path_factory.mktemp("equitable")
    (folder / "Extract.v").write_text(EXTRACT, encoding="utf-8")
    done = coq.run_coqc(folder / "Extract.v", theory, 60)
    assert done.ok, done.output
    (folder / "main.ml").write_text(DRIVER, encoding="utf-8")
    command = "ocamlfind ocamlopt equitable.mli equitable.ml main.ml -o equitable"
    made = subprocess.run(command.split(), cwd=folder, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    return folder / "equitable"


def traffic(dice: Dice, nodes: int, most: int) -> Ints:
    """Chunks from node to node, int64 [nodes, nodes], none inside a node; some pairs have none."""
    counts = dice.below(most + 1, (nodes, nodes)) * dice.below(2, (nodes, nodes))
    counts[np.arange(nodes), np.arange(nodes)] = 0
    return counts


def by_policy(counts: Ints, rails: int) -> Ints:
    """What `equitable` puts on every rail, int64 [rails, nodes, nodes]."""
    nodes = len(counts)
    src, dst = np.nonzero(counts)
    many = counts[src, dst]
    src, dst = np.repeat(src, many), np.repeat(dst, many)
    chunks = Chunks.from_arrays(nodes=nodes, src=src, dst=dst, size=np.full(src.size, 4096))
    rail = plan(Fabric.uniform(nodes, rails), chunks, "equitable").rail
    found = np.zeros((rails, nodes, nodes), np.int64)
    np.add.at(found, (rail, chunks.src, chunks.dst), 1)
    return found


def test_the_policy_is_the_proved_program(program: Path) -> None:
    dice, cases = Dice(22, "equitable"), []
    for case in range(180):
        nodes, rails = 2 + case % (15 if case % 10 == 0 else 6), 1 + case % 16
        cases.append((rails, traffic(dice, nodes, 1 + case % 37)))
    given = [str(len(cases))]
    for rails, counts in cases:
        given.append(" ".join(map(str, [len(counts), rails, *counts.ravel().tolist()])))
    done = subprocess.run(
        [program], input="\n".join(given), capture_output=True, text=True, check=True, timeout=60
    )
    for (rails, counts), line in zip(cases, done.stdout.splitlines(), strict=True):
        theirs = np.array(line.split(), np.int64).reshape(rails, *counts.shape)
        assert (theirs == by_policy(counts, rails)).all(), (rails, counts)
