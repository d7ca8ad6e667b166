"""The kernel benchmark: its cases, measurements, verdicts, and its page in a browser."""

import json
import shutil
import subprocess

import pytest
import torch

pytestmark = pytest.mark.needs_ipex


@pytest.fixture(scope="module")
def run():
    from intel_extension_for_pytorch.bench import measure
    from intel_extension_for_pytorch.bench.cases import select

    cases = select(r"pointwise/(exp|where)/fp32/L1/broadcast|fused/(softmax|cast)/bf16/L1|matmul/dlrm_256x512x256/fp32")
    assert len(cases) == 5
    started = measure.conditions()
    results = list(measure.measure(cases, 10, ("eager", "ipex")))
    return measure.finish(results, 10, started)


def test_every_row_of_the_tables_has_cases():
    import op_cases
    from intel_extension_for_pytorch.bench.cases import all_cases

    names = [case.name for case in all_cases()]
    assert len(names) == len(set(names))
    covered = {"/".join(name.split("/")[:2]) for name in names}
    integer_only = {"gcd", "lcm", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"}
    for kind in ("pointwise", "reduction", "scan"):
        rows = {row["name"] for row in op_cases.table_rows(kind) if row["aten"] and row["floats"]} - integer_only
        assert rows
        missing = {row for row in rows if f"{kind}/{row}" not in covered}
        assert not missing


def test_every_standard_case_can_be_made():
    from intel_extension_for_pytorch.bench.cases import select

    cases = [case for case in select(None) if case.size != "memory"]
    assert len(cases) >= 150
    with torch.no_grad():
        for case in cases:
            function, inputs = case.make()
            if case.size in ("L2", "-"):
                assert function(*inputs) is not None, case.name


def test_results_agree_with_eager_and_are_native(run):
    for result in run.results:
        assert not result.failures
        assert result.extern_steps == 0
        assert result.kernels + result.library_steps >= 1
        assert result.error < (1e-2 if result.dtype == "bf16" else 1e-5), result.name
        assert result.bytes > 0
        assert result.bound_ms > 0
        assert result.samples["ipex"].median > 0


def test_json_csv_and_graphs(run, tmp_path):
    from intel_extension_for_pytorch import _C
    from intel_extension_for_pytorch.bench import report

    report.save_json(run, tmp_path / "run.json")
    assert report.load(tmp_path / "run.json") == run
    report.save_csv(run, tmp_path / "run.csv")
    assert len((tmp_path / "run.csv").read_text().splitlines()) == 1 + len(run.results)
    report.save_graphs(run, tmp_path / "graphs")
    texts = sorted((tmp_path / "graphs").glob("*.graph"))
    assert len(texts) == len(run.results)
    for text in texts:
        _C.Graph.parse(text.read_text()).verify()
    (tmp_path / "other.json").write_text(json.dumps({"format": 2}))
    with pytest.raises(ValueError, match=r"other\.json is not a result.*format 2"):
        report.load(tmp_path / "other.json")


def result_of(ipex_ms, peer_ms, spread):
    from intel_extension_for_pytorch.bench.measure import Result
    from intel_extension_for_pytorch.bench.timing import Sample

    samples = {"eager": Sample(1.0, 1.0, 0.0), "inductor": Sample(peer_ms, peer_ms, spread)}
    return Result("a/b", "fp32", 1, 1.0, 0.1, samples | {"ipex": Sample(ipex_ms, ipex_ms, spread)})


@pytest.mark.parametrize(
    ("ipex_ms", "peer_ms", "spread", "verdict"),
    [(1.0, 1.5, 0.1, "faster"), (1.5, 1.0, 0.1, "slower"), (1.0, 1.1, 0.1, "same"), (1.1, 1.0, 0.2, "same")],
)
def test_a_difference_below_the_noise_is_none(ipex_ms, peer_ms, spread, verdict):
    assert result_of(ipex_ms, peer_ms, spread).verdict("inductor") == verdict


def test_compare_counts_regressions_beyond_the_noise(run):
    import dataclasses

    from intel_extension_for_pytorch.bench import report

    old = dataclasses.replace(run, results=[result_of(1.0, 1.0, 0.05)])
    assert report.compare(old, dataclasses.replace(run, results=[result_of(1.5, 1.0, 0.05)]))[1] == 1
    assert report.compare(old, dataclasses.replace(run, results=[result_of(1.02, 1.0, 0.05)]))[1] == 0


def test_page_holds_everything(run, tmp_path):
    pytest.importorskip("plotly")
    from intel_extension_for_pytorch.bench import page

    page.save(run, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "<script src=" not in text
    for result in run.results:
        assert f"<td>{result.name}</td>" in text


@pytest.mark.nightly
def test_page_in_a_browser(run, tmp_path):
    """Both figures are drawn: after the scripts have run, the document has a mark for each kernel."""
    from intel_extension_for_pytorch.bench import page

    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert browser, "install chromium: `make nightly` does"
    page.save(run, tmp_path / "page.html")
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000", "--dump-dom"]
    shown = subprocess.run(
        [browser, *options, f"file://{tmp_path / 'page.html'}"], capture_output=True, text=True, timeout=300, check=True
    ).stdout
    assert shown.count('class="point"') >= 2 * len(run.results)
    assert shown.count('class="main-svg"') >= 2


def test_rounds_end_with_the_budget():
    import time

    from intel_extension_for_pytorch.bench.timing import interleaved

    calls = {"slow": 0, "fast": 0}

    def slow():
        calls["slow"] += 1
        time.sleep(0.02)

    def fast():
        calls["fast"] += 1

    samples = interleaved({"slow": slow, "fast": fast}, rounds=50, min_round_ms=1, budget_s=0.05)
    assert calls["slow"] == 1 + 3  # warmed up once; two rounds last 40 ms, a third begins within 50
    assert calls["fast"] > 3
    assert 20 <= samples["slow"].best <= samples["slow"].median
