"""`railopt place`: its report, its exports, its refusals."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from railopt.cli.main import main
from railopt.moe.assess import RAIL_POLICIES
from railopt.moe.placement.moves import MovesBound
from railopt.moe.placement.placement import Placement
from railopt.moe.routing.trace import Trace

FABRIC = ["--nodes", "2", "--gpus", "2"]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two iterations of two layers on four ranks, which no test changes."""
    rng = np.random.default_rng(0)
    popular = np.arange(1, 9) ** -1.2
    counts = np.array(
        [
            [[rng.multinomial(400, popular / popular.sum()) for _ in range(4)] for _ in range(2)]
            for _ in range(2)
        ]
    )
    model = {"ffn": 64, "shared": 0}
    path = tmp_path_factory.mktemp("trace") / "t.npz"
    Trace(counts, 2, 200, 64, np.array([5, 6]), meta={"model": model}).save(path)
    return str(path)


@pytest.mark.slow
@pytest.mark.parametrize("planner", ["contiguous", "replicate", "shadow", "pro-prophet", "optimal"])
def test_every_planner_reports(
    planner: str, trace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [] if planner == "contiguous" else ["--replicas", "12"]
    options += ["--iteration", "6"] if planner == "optimal" else []  # one plan: it is dear
    assert main(["place", trace, *FABRIC, *options, "--planner", planner, "--json"]) == (
        2 if planner == "optimal" else 0
    )
    data = json.loads(capsys.readouterr().out)
    assert data["planner"] == planner
    assert data["experts_per_gpu"] <= 3
    if planner in ("replicate", "pro-prophet", "optimal"):
        assert data["after"]["balance"] < data["before"]["balance"]
    assert set(data["before"]["links"]) == set(RAIL_POLICIES)
    assert {"own-nic", "even-excess", "spill"} <= set(RAIL_POLICIES)
    for name, link in data["before"]["links"].items():
        assert link["busiest_nic_bytes"] > 0, name
    assert (data["moved_bytes"] == 0) == (planner == "contiguous")
    if planner != "replicate":  # it balances compute and knows no links
        assert data["after"]["iteration_s"] <= data["before"]["iteration_s"]


@pytest.mark.slow
def test_optimal_says_on_whose_word_it_is(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    two = ["--nodes", "2", "--gpus", "1", "--merge-ranks"]
    assert main(["place", trace, *two, "--planner", "optimal", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["optimal"], data["optimum"]) == (True, "known")
    assert len(data["optima"]) == data["layers"] == 2
    for known in data["optima"]:
        assert known["value"] == known["bound"]
        assert (known["gap"], known["optimum"]) == ("0", "known")
        assert known["by"] == "every placement tried"
    # 24 possible copies: an integer program
    assert main(["place", trace, *FABRIC, "--planner", "optimal", "--iteration", "6"]) == 2
    out = capsys.readouterr().out
    assert "layers' optima: 0 known" in out
    assert "(HiGHS " in out


@pytest.mark.slow
def test_the_table_names_every_policy(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["place", trace, *FABRIC]) == 0
    out = capsys.readouterr().out
    for text in (
        "scores: 1 training iterations (6), by a plan on the steps before; this placement: "
        "planned on 2 (5 to 6)",
        "eplb, ",
        "busiest NIC, pxn",
        "dispatch, equitable",
        "bytes on step 6",
        "time on step 6",
        "iteration",
        "experts moved:",
    ):
        assert text in out


@pytest.mark.slow
def test_exports_are_what_the_placement_is(
    trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {
        "--sglang": tmp_path / "s.json",
        "--vllm-ascend": tmp_path / "v.json",
        "--tensorrt-llm": tmp_path / "t.yaml",
        "--gantt": tmp_path / "g.svg",
    }
    options = [part for flag, path in files.items() for part in (flag, str(path))]
    assert (
        main(["place", trace, *FABRIC, "--replicas", "12", "--planner", "replicate", *options]) == 0
    )
    said = capsys.readouterr().err
    options = f"--ep-size 4 --ep-num-redundant-experts 4 --init-expert-location {files['--sglang']}"
    assert f"python -m sglang.launch_server ... {options}" in said
    slots = json.loads(files["--sglang"].read_text())["physical_to_logical_map"]
    yaml = files["--tensorrt-llm"].read_text().splitlines()
    assert yaml[:3] == ["num_slots: 12", "layer_updates_per_iter: 0", "initial_global_assignments:"]
    assert yaml[3:] == [f"  {layer}: {row}" for layer, row in enumerate(slots)]
    placed = Placement.from_phy2log(slots, 2, 2, 8)
    assert np.shape(slots) == (2, 12)
    ascend = json.loads(files["--vllm-ascend"].read_text())
    for layer in ascend["layer_list"]:
        for device in layer["device_list"]:
            expected = np.flatnonzero(placed.holds[layer["layer_id"], device["device_id"]])
            assert device["device_expert"] == expected.tolist()
    assert files["--gantt"].stat().st_size > 1000
    assert main(["place", trace, *FABRIC, "--sglang", str(files["--sglang"])]) == 1
    assert "exists" in capsys.readouterr().err
    assert (
        main(
            [
                "place",
                trace,
                *FABRIC,
                "--planner",
                "replicate",
                "--replicas",
                "12",
                "--json",
                "--previous",
                str(files["--sglang"]),
            ]
        )
        == 0
    )
    assert json.loads(capsys.readouterr().out)["moved_bytes"] == 0


@pytest.mark.slow
def test_what_is_there_already_is_kept_and_moves_have_a_weight(
    trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = str(tmp_path / "first.json")
    assert (
        main(["place", trace, *FABRIC, "--replicas", "12", "--iteration", "5", "--sglang", first])
        == 0
    )
    capsys.readouterr()

    def moved(*options: str) -> int:
        assert (
            main(
                [
                    "place",
                    trace,
                    *FABRIC,
                    "--replicas",
                    "16",
                    "--iteration",
                    "6",
                    "--json",
                    "--previous",
                    first,
                    *options,
                ]
            )
            == 0
        )
        return int(json.loads(capsys.readouterr().out)["moved_bytes"])

    assert moved("--move-weight", "0") >= moved() >= moved("--move-weight", "1e9") == 0
    assert main(["place", trace, *FABRIC, "--move-weight", "-1"]) == 1
    assert "expected at least 0" in capsys.readouterr().err


@pytest.mark.slow
def test_planning_on_one_iteration(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["place", trace, *FABRIC, "--iteration", "6", "--json"]) == 0
    fresh = json.loads(capsys.readouterr().out)
    assert (fresh["planned_on"], fresh["scored_on"], fresh["held_out"]) == ([6], [6], False)
    assert main(["place", trace, *FABRIC, "--json"]) == 0
    held_out = json.loads(capsys.readouterr().out)
    assert (held_out["planned_on"], held_out["scored_on"]) == ([5, 6], [6])


def test_what_servers_round_up_to_is_said(
    trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--planner", "replicate", "--replicas", "13", "--sglang", str(tmp_path / "s.json")]
    assert main(["place", trace, *FABRIC, *options]) == 0
    said = capsys.readouterr()
    assert "13 replicas per layer asked, 16 placed" in said.out
    slots = json.loads((tmp_path / "s.json").read_text())["physical_to_logical_map"]
    assert np.shape(slots) == (2, 16)


@pytest.mark.parametrize(("groups", "kept"), [(2, 2), (3, 0)])
def test_groups_that_can_not_stay_on_one_node_are_said(
    groups: int, kept: int, trace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["place", trace, *FABRIC, "--planner", "replicate", "--replicas", "8"]
    line += ["--groups", str(groups)]
    assert main([*line, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["layers"], data["layers_keeping_groups"]) == (2, kept)
    assert main(line) == 0
    said = f"expert groups stay on one node each in {kept} of 2 layers"
    assert (said in capsys.readouterr().out) == (kept < 2)


@pytest.mark.slow
@pytest.mark.parametrize("planner", ["contiguous", "pro-prophet", "shadow"])
def test_copies_that_only_a_file_has_are_counted_and_not_placed(
    planner: str, trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Eleven replicas are at most eleven, and files have as many slots on each of four GPUs."""
    saved = tmp_path / "s.json"
    options = ["--planner", planner, "--replicas", "11", "--sglang", str(saved), "--force"]
    assert main(["place", trace, *FABRIC, *options]) == 0
    said = capsys.readouterr()
    assert "the same number on every GPU" not in said.out
    assert main(["place", trace, *FABRIC, *options, "--json"]) == 0
    copies = json.loads(capsys.readouterr().out)["copies"]
    slots = np.shape(json.loads(saved.read_text())["physical_to_logical_map"])
    assert copies <= 2 * 11
    assert slots == (2, 12)
    note = f"files for servers have {2 * 12 - copies} further copies, which are in no score: 3"
    assert note in said.err


def test_before_has_the_tokens_of_all_experts_where_gpus_are_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "load.npy", np.tile([10, 20, 1000, 3000], (4, 1, 1)))
    options = ["--planner", "replicate", "--replicas", "4", "--active", "0,1", "--json"]
    line = ["place", str(tmp_path / "load.npy"), *FABRIC, "--model", "mixtral-8x7b", *options]
    assert main(line) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["before"]["balance"] == pytest.approx(4000 / 2015)  # two experts a GPU
    assert data["orphans"] == 0


@pytest.mark.slow
def test_a_gpu_dies_and_its_experts_come_back(
    trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = str(tmp_path / "before.json")
    options = [*FABRIC, "--planner", "replicate"]
    assert main(["place", trace, *options, "--replicas", "12", "--sglang", before]) == 0
    capsys.readouterr()
    off = ["--active", "0-1,3", "--replicas", "9", "--previous", before, "--aim", "link"]
    assert main(["place", trace, *options, *off, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["eplb"]["replicas"] == 9
    assert data["least_new_copies"] <= data["new_copies"]
    assert main(["place", trace, *options, *off, "--costs", "fabric"]) == 0
    out = capsys.readouterr().out
    assert "new copies, at least " in out
    assert ("from storage" in out) == (data["orphans"] > 0)


def test_slots_of_a_file_are_those_of_the_fullest_gpu_where_some_are_off(
    trace: str, tmp_path: Path
) -> None:
    saved, ascend = tmp_path / "s.json", tmp_path / "a.json"
    options = [*FABRIC, "--planner", "replicate", "--replicas", "11", "--active", "0-1,3"]
    files = ["--sglang", str(saved), "--vllm-ascend", str(ascend)]
    assert main(["place", trace, *options, *files]) == 0
    slots = json.loads(saved.read_text())["physical_to_logical_map"]
    assert np.shape(slots) == (2, 16), "four on each of three GPUs, and on the one that is off"
    layers = json.loads(ascend.read_text())["layer_list"]
    devices = [[one["device_expert"] for one in layer["device_list"]] for layer in layers]
    np.testing.assert_array_equal(np.reshape(devices, (2, 16)), slots)


def test_files_for_servers_have_as_many_slots_on_every_gpu_where_none_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "load.npy", np.random.default_rng(0).integers(1, 99, (8, 1, 7)))
    options = [*FABRIC, "--model", "mixtral-8x7b", "--planner", "replicate", "--json"]
    saved = ["--sglang", str(tmp_path / "s.json")]
    assert main(["place", str(tmp_path / "load.npy"), *options, *saved]) == 0
    assert json.loads(capsys.readouterr().out)["eplb"]["replicas"] == 12
    slots = json.loads((tmp_path / "s.json").read_text())["physical_to_logical_map"]
    assert np.shape(slots) == (1, 12)


def test_times_of_training_are_not_given_for_serving(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load = np.random.default_rng(0).integers(0, 999, (5, 2, 8))
    np.save(tmp_path / "load.npy", load)
    options = [*FABRIC, "--model", "mixtral-8x7b", "--planner", "replicate", "--rolling", "1"]
    assert main(["place", str(tmp_path / "load.npy"), *options, "--held-out", "2"]) == 0
    out = capsys.readouterr().out
    assert "scores: 2 loads (3 to 4), by 2 plans, each on the steps before" in out
    assert "iteration" not in out.replace("iterations", "")
    gantt = ["--gantt", str(tmp_path / "g.svg")]
    assert main(["place", str(tmp_path / "load.npy"), *options, "--held-out", "2", *gantt]) == 1
    assert "draws a training iteration: the trace has loads" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--replicas", "7"], "smallest feasible number is 8"),
        (["--memory", "20KiB"], "need at least 2"),
        (["--replicas", "16", "--memory", "80KiB"], "16 on 4 GPUs need at least 4"),
        (["--iteration", "1"], "was not recorded"),
        (["--iteration", "5", "--window", "2"], "--window can't do anything with --iteration"),
        (["--window", "0"], "--window: "),
        (["--window", "some"], "--window: "),
        (["--decay", "1.5"], "expected more than 0 and at most 1"),
        (["--decay", "nan"], "--decay: 'nan' is not a number"),
        (["--held-out", "2"], "expected 0 to 1, since a plan needs one to see"),
        (["--held-out", "0", "--rolling", "1"], "none are held out"),
        (["--rolling", "0"], "expected at least 1"),
        (["--active", "0-9"], "expected GPUs from 0 to 3"),
        (["--active", "x"], "expected a GPU"),
        (["--active", "2-"], "expected a GPU"),
        (["--previous", ""], "No such file"),
        (["--sglang", ""], "the name of a file"),
        (["--sglang", "x", "--vllm-ascend", "x"], "x is to be written twice"),
        (["--sglang", "./x", "--tensorrt-llm", "x", "--force"], "x is to be written twice"),
        (["--sglang", "x.svg", "--gantt", "x.svg"], "x.svg is to be written twice"),
        (["--sglang", "absent/x.json"], "does not exist"),
        (["--force"], "--force can't do anything without --sglang"),
        (["--planner", "contiguous", "--decay", "1"], "--decay can't do anything"),
        (["--planner", "contiguous", "--replicas", "8"], "without --sglang"),
        (["--active", ","], "expected one or more"),
        (["--planner", "optimal", "--active", "0"], "places on all GPUs"),
        (["--costs", "fabric"], "--costs can't do anything with --planner pro-prophet"),
        (["--planner", "replicate", "--costs", "none.npy"], "No such file"),
        (["--planner", "replicate", "--rail-policy", "lpt"], "without --aim link"),
        (["--model", "nobody"], "known models"),
        (["--previous", "absent.json"], "No such file"),
        (["--planner", "optimal", "--limit", "0"], "expected more than 0"),
        (["--planner", "optimal", "--limit", "-1"], "can't be negative"),
        (["--planner", "optimal", "--limit", "nan"], "is not a time"),
        (["--limit", "10s"], "--limit can't do anything with --planner pro-prophet"),
        (["--groups", "2"], "--groups can't do anything with --planner pro-prophet"),
        (["--top-k", "2"], "--top-k can't do anything with a trace that knows it"),
        (["--tokens", "5"], "--tokens can't do anything with a trace of 200 tokens per rank"),
        (["--planner", "contiguous", "--move-weight", "2"], "--move-weight can't do anything"),
        (["--planner", "replicate", "--move-weight", "2"], "without --previous or --aim time"),
        (["--gpu-tflops", "0"], "FLOP/s per GPU"),
        (["--gpu-tflops", "nan"], "FLOP/s per GPU"),
        (["--move-weight", "inf"], "and finite"),
        (["--move-weight", "1e40"], "at most"),
        (["--planner", "replicate", "--groups", "0"], "groups = 0: expected a whole number"),
    ],
)
def test_refusals(
    options: list[str], message: str, trace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["place", trace, *FABRIC, *options]) == 1
    assert message in capsys.readouterr().err


def test_a_trace_for_other_ranks_is_refused_or_merged(
    trace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["place", trace, "--nodes", "2", "--gpus", "1"]) == 1
    assert "expected 2, one per GPU: merge ranks first" in capsys.readouterr().err
    assert main(["place", trace, "--nodes", "2", "--gpus", "1", "--merge-ranks", "--json"]) == 0
    capsys.readouterr()


def test_load_tensors_need_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "load.npy", np.random.default_rng(0).integers(0, 999, (2, 64)))
    assert main(["place", str(tmp_path / "load.npy"), *FABRIC]) == 1
    err = capsys.readouterr().err
    assert "name one, e.g. --model deepseek-v2-lite (`railopt place` also takes dimensions" in err
    assert "does not say how many experts a token has: 1, --top-k or --model" in err
    assert (
        main(
            [
                "place",
                str(tmp_path / "load.npy"),
                *FABRIC,
                "--model",
                "deepseek-v2-lite",
                "--planner",
                "replicate",
                "--json",
            ]
        )
        == 0
    )
    ran = capsys.readouterr()
    assert json.loads(ran.out)["model"] == "DeepSeek-V2-Lite"
    assert "does not say how many experts a token has: 6, as deepseek-v2-lite has" in ran.err


@pytest.mark.slow
def test_dimensions_by_flags_and_room_that_is_assumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "load.npy", np.random.default_rng(0).integers(0, 999, (4, 2, 8)))
    line = ["place", str(tmp_path / "load.npy"), *FABRIC, "--top-k", "2"]
    line += ["--model-dim", "1024", "--ffn", "512"]
    for planner in ("replicate", "pro-prophet", "shadow"):
        assert main([*line, "--planner", planner, "--json"]) == 0
        data = json.loads(capsys.readouterr().out)
        assert data["slots_assumed"] == 3  # 8 experts on 4 GPUs, and one more on each
        assert data["experts_per_gpu"] <= 3
        assert data["model"] == "1024 x 512"
    assert main(line) == 0
    weights = 3 * 2 * 3 * 1024 * 512 * 2  # slots, layers, matrices, bf16
    assert weights == 18 << 20
    said = "assumed: room for 3 experts per GPU and layer, 18MiB of bf16 weights"
    assert said in capsys.readouterr().out
    assert main([*line, "--planner", "replicate", "--replicas", "12", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["slots_assumed"] is None
    assert main([*line[:-2], "--json"]) == 1
    assert "--model-dim can't do anything without --ffn" in capsys.readouterr().err


def test_counts_of_four_dimensions_are_a_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = np.random.default_rng(0).integers(0, 99, (4, 2, 4, 8))
    np.save(tmp_path / "counts.npy", counts)
    Trace(counts.astype(np.int32), 2).save(tmp_path / "trace.npz")
    found = []
    for name, more in (("counts.npy", ["--top-k", "2"]), ("trace.npz", [])):
        line = ["place", str(tmp_path / name), *FABRIC, *more, "--model", "mixtral-8x7b"]
        assert main([*line, "--planner", "replicate", "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0] == found[1]
    assert found[0]["records"] == "training iterations"


@pytest.mark.slow
def test_replicate_moves_nothing_that_need_not_move(
    trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = str(tmp_path / "before.json")
    options = [*FABRIC, "--replicas", "12", "--planner", "replicate"]
    assert main(["place", trace, *options, "--iteration", "5", "--sglang", before]) == 0
    moved = {}
    for name, more in (
        ("same", ["--iteration", "5"]),
        ("next", []),
        ("dear", ["--move-weight", "1e9"]),
    ):
        capsys.readouterr()
        assert main(["place", trace, *options, *more, "--previous", before, "--json"]) == 0
        moved[name] = json.loads(capsys.readouterr().out)["moved_bytes"]
    assert moved["same"] == moved["dear"] == 0
    assert main(["place", trace, *options, "--json"]) == 0
    from_contiguous = json.loads(capsys.readouterr().out)["moved_bytes"]
    assert moved["next"] < from_contiguous


@pytest.mark.slow
@pytest.mark.parametrize("aim", ["gpu", "link", "time"])
@pytest.mark.parametrize("replicas", ["8", "12"])
def test_what_is_dear_to_move_stays_whatever_the_aim(
    aim: str, replicas: str, trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = str(tmp_path / "before.json")
    options = [*FABRIC, "--replicas", replicas, "--planner", "replicate"]
    assert main(["place", trace, *options, "--iteration", "5", "--sglang", before]) == 0
    capsys.readouterr()
    dear = ["--previous", before, "--aim", aim, "--move-weight", "1e9", "--json"]
    assert main(["place", trace, *options, *dear]) == 0
    assert json.loads(capsys.readouterr().out)["new_copies"] == 0


@pytest.mark.parametrize(("replicas", "new"), [("9", 0), ("16", 4)])
def test_with_another_number_of_replicas_what_is_dear_stays(
    replicas: str, new: int, trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = str(tmp_path / "before.json")
    options = [*FABRIC, "--planner", "replicate", "--iteration", "5"]
    assert main(["place", trace, *options, "--replicas", "12", "--sglang", before]) == 0
    capsys.readouterr()
    more = ["--replicas", replicas, "--previous", before, "--move-weight", "1e9", "--json"]
    assert main(["place", trace, *options, *more]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["new_copies"] == data["least_new_copies"] == 2 * new  # layers


@pytest.mark.slow
def test_ctrl_c_prints_the_best_so_far(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    counts = rng.multinomial(3000, np.arange(16, 0, -1) / 136, (1, 3, 16))
    trace = Trace(counts, 1, 3000, 64, meta={"model": {"ffn": 4096}})
    trace.save(tmp_path / "t.npz")
    command = [sys.executable, "-m", "railopt", "place", str(tmp_path / "t.npz")]
    command += ["--nodes", "4", "--gpus", "4", "--planner", "optimal", "--limit", "300", "--json"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    solver = Path(f"/proc/{child.pid}/task/{child.pid}/children")
    deadline = time.monotonic() + 240
    while not solver.read_text() and time.monotonic() < deadline:
        time.sleep(0.1)
    solvers = solver.read_text().split()
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=120)
    assert child.returncode == 130, err
    assert json.loads(out)["optimum"] == "open"
    assert len(json.loads(out)["optima"]) == 3
    assert "Traceback" not in err
    assert solvers
    while any(Path(f"/proc/{pid}").exists() for pid in solvers):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_the_row_of_eplb_says_how_its_tokens_split(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "load.npy", np.random.default_rng(0).integers(0, 999, (5, 2, 8)))
    options = [*FABRIC, "--model", "mixtral-8x7b", "--planner", "replicate", "--replicas", "12"]
    rows = {}
    for rule in ("even", "near"):
        command = ["place", str(tmp_path / "load.npy"), *options, "--rule", rule]
        assert main(command) == 0
        rows[rule] = capsys.readouterr().out
        assert main([*command, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["eplb"]["rule"] == "even"
    assert "eplb, 12 replicas, tokens even" not in rows["even"]
    assert "eplb, 12 replicas, tokens even" in rows["near"]


@pytest.mark.slow
def test_a_map_for_vllm_is_read_back_and_its_repair_is_a_curve(
    trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "map.json"
    options = ["place", trace, *FABRIC, "--planner", "replicate", "--replicas", "12"]
    assert main([*options, "--iteration", "5", "--vllm", str(path)]) == 0
    rows = json.loads(path.read_text())
    assert all(len(row) == 12 and set(row) == set(range(8)) for row in rows)
    capsys.readouterr()
    assert main([*options, "--previous", str(path), "--moves", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    curve = found["moves"]
    for point in curve:
        for load, row, said in zip(found["moves_loads"], rows, point["bounds"], strict=True):
            bound = MovesBound(said["moves"], said["witness"])
            assert bound.holds(np.array(load), np.array(row), 4, Fraction(said["most"]))
    assert curve[0] == {**curve[0], "budget": 0, "moves": 0, "least": 0}
    assert all(point["least"] <= point["moves"] for point in curve)
    balances = [point["balance"] for point in curve]
    assert balances == sorted(balances, reverse=True)
    made = tmp_path / "next.json"
    repair = [*options, "--previous", str(path), "--repair"]
    assert main([*repair, "moves=1", "--vllm", str(made), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["new_copies"] == curve[1]["moves"]
    assert main([*repair, "moves=0", "--vllm", str(made), "--force"]) == 0
    assert [sorted(row) for row in json.loads(made.read_text())] == [sorted(row) for row in rows]
    path.write_text(json.dumps([row[:-1] for row in rows]))
    capsys.readouterr()
    assert main([*options, "--previous", str(path)]) == 1
    assert "11 slots per layer on 4 GPUs: expected as many on each" in capsys.readouterr().err
    odd = json.loads(json.dumps(rows))
    where = next(s for s in range(12) if rows[0].count(rows[0][s]) > 1)
    odd[0][where] = -1  # an empty slot
    first = next(s for s in range(12) if rows[1].count(rows[1][s]) > 1)
    odd[1][first] = rows[1][first - 1 if first % 3 else first + 1]  # twice on its GPU
    path.write_text(json.dumps(odd))
    assert main([*options, "--previous", str(path), "--moves", "--json"]) == 0
    curve = json.loads(capsys.readouterr().out)["moves"]
    assert curve[0]["moves"] == 1, "the empty slot is filled, whatever the budget"
    assert all(point["least"] <= point["moves"] for point in curve)
    assert main([*repair, "tolerance=1.1", "--vllm", str(made), "--force"]) == 0
    assert all(set(row) == set(range(8)) for row in json.loads(made.read_text()))
    path.write_text(json.dumps(rows[0]))  # one list for all layers
    assert main([*options, "--previous", str(path), "--moves"]) == 0
    assert "at most 0" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--planner", "replicate", "--moves"], "--moves can't do anything without --previous"),
        (["--moves"], "--moves can't do anything with --planner pro-prophet"),
    ],
)
def test_moves_need_a_map_and_replicate(
    options: list[str], message: str, trace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["place", trace, *FABRIC, *options]) == 1
    assert message in capsys.readouterr().err
