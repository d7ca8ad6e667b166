"""The frontend: modes, strides, mutation, aliasing, random numbers, options, threads, fallback and strict mode."""

import gc
import json
import logging
import re
import threading

import pytest
import torch
from torch import nn

pytestmark = pytest.mark.needs_ipex


@pytest.fixture(autouse=True)
def ipex_module():
    return pytest.importorskip("intel_extension_for_pytorch")


@pytest.fixture
def reports(ipex_module):
    with ipex_module.record_reports() as found:
        yield found


def small_model():
    return nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3))


def assert_same(ours, eager, **tolerances):
    torch.testing.assert_close(ours, eager, **tolerances)
    assert ours.stride() == eager.stride()


# ---- modes ----


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_modes(compiled, strict, mode):
    model, x = small_model(), torch.randn(5, 6)
    with mode():
        eager, ours = model(x), compiled(model)(x)
    assert_same(ours, eager)
    assert ours.is_inference() == eager.is_inference()
    assert ours.requires_grad == eager.requires_grad


def test_gradients_of_every_parameter(compiled, strict):
    model, x = small_model(), torch.randn(5, 6, requires_grad=True)
    inputs = [x, *model.parameters()]
    expected = torch.autograd.grad(model(x).square().sum(), inputs)
    found = torch.autograd.grad(compiled(model)(x).square().sum(), inputs)
    for ours, eager in zip(found, expected, strict=True):
        assert_same(ours, eager, rtol=1e-4, atol=1e-5)


def test_collections_skip_older_objects_while_compiling(compiled, strict, monkeypatch):
    from intel_extension_for_pytorch.compiler import backend

    seen, compile_one = [], backend._compile

    def watched(*args, **options):
        seen.append(gc.get_freeze_count())
        return compile_one(*args, **options)

    monkeypatch.setattr(backend, "_compile", watched)
    x = torch.randn(5, 6)
    compiled(lambda v: v.sin() + 1)(x)
    assert seen[0] > 10_000 and gc.get_freeze_count() == 0
    gc.freeze()  # as servers do before they fork; the objects must stay frozen
    try:
        kept = gc.get_freeze_count()
        compiled(lambda v: v.cos() + 1)(x)
        assert len(seen) == 2 and gc.get_freeze_count() >= kept * 0.99
    finally:
        gc.unfreeze()


def test_autocast(compiled, strict):
    model, x = small_model(), torch.randn(5, 6)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        eager, ours = model(x), compiled(model)(x)
    assert ours.dtype == eager.dtype == torch.bfloat16
    assert_same(ours, eager, rtol=2e-2, atol=2e-2)


def test_bfloat16_model(compiled, strict):
    model, x = small_model().bfloat16(), torch.randn(5, 6).bfloat16()
    with torch.no_grad():
        assert_same(compiled(model)(x), model(x), rtol=3e-2, atol=3e-2)


def test_channels_last(compiled, strict):
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)).eval()
    model = model.to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    with torch.no_grad():
        assert_same(compiled(model)(x), model(x), rtol=1e-4, atol=1e-5)


# ---- strides and layouts ----


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x * 2).t(),
        lambda x: (x + 1).t().contiguous(),
        lambda x: x.sum(0, keepdim=True).expand(4, 6),
        lambda x: (x * 2).unsqueeze(0).transpose(0, 2),
        lambda x: torch.empty_strided((2, 3), (1, 2)).copy_(x[:2, :3]) + 1,
        lambda x: (x * 2)[:, ::2],
    ],
)
def test_output_strides_are_eagers(compiled, function):
    x = torch.randn(4, 6)
    assert_same(compiled(function)(x), function(x))


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randn(6, 4).t(),
        lambda: torch.randn(4, 1).expand(4, 6),
        lambda: torch.randn(4, 12)[:, ::2],
        lambda: torch.randn(25)[1:].view(4, 6),
        lambda: torch.randn(0, 6),
    ],
    ids=["transposed", "overlapping", "strided", "offset", "empty"],
)
def test_input_layouts(compiled, strict, make):
    def function(x):
        return torch.softmax(x * 2, -1) + x

    x = make()
    before = x.clone()
    assert_same(compiled(function)(x), function(x))
    assert torch.equal(x, before)


def test_zero_dimensional_values(compiled, strict):
    def function(x, y):
        return x * y + x.sum() / 3, (y > 0) & True

    x, y = torch.randn(5), torch.tensor(2, dtype=torch.int64)
    for ours, eager in zip(compiled(function)(x, y), function(x, y), strict=True):
        assert_same(ours, eager)


def test_sums_and_products_as_bool(compiled, strict):
    """With `dtype=torch.bool`, a sum tests whether any element is nonzero, and a product whether all are."""

    def reduced(x):
        return (
            x.sum(dtype=torch.bool),
            x.sum(0, dtype=torch.bool),
            x.prod(dtype=torch.bool),
            x.prod(1, dtype=torch.bool),
        )

    for x in (
        torch.tensor([[1.0, 0, 2], [3, 4, 5]]),
        torch.tensor([[True, False]]),
        torch.zeros(2, 3, dtype=torch.int32),
    ):
        for ours, eager in zip(compiled(reduced)(x), reduced(x), strict=True):
            assert ours.dtype == eager.dtype and torch.equal(ours, eager)


def test_identity_matrices(compiled, strict):
    """Also large ones, whose indices do not fit a byte."""

    def function(x):
        return x @ torch.eye(300), torch.eye(300, 7, dtype=torch.int32), torch.eye(3, dtype=torch.bool), torch.eye(0)

    x = torch.randn(4, 300)
    for ours, eager in zip(compiled(function)(x), function(x), strict=True):
        assert_same(ours, eager)


def test_expansion_to_nothing(compiled, strict, monkeypatch):
    """A dimension without elements is not a broadcast one, although its stride is 0 too."""
    monkeypatch.setenv("IPEX_VERIFY", "1")
    x = torch.randn(1, 8)
    assert_same(compiled(lambda x: x.expand(0, -1))(x), x.expand(0, -1))


# ---- mutation and aliasing ----


def test_mutated_input_is_written_once(compiled, strict):
    def function(x, y):
        x.mul_(2).add_(y)
        return x.sum()

    eager_x, ours_x, y = torch.ones(4, 3), torch.ones(4, 3), torch.randn(4, 3)
    run = compiled(function)
    for _ in range(3):
        version = ours_x._version
        eager, ours = function(eager_x, y), run(ours_x, y)
        assert_same(ours, eager)
        assert_same(ours_x, eager_x)
        assert ours_x._version == version + 1


def test_batch_norm_statistics(compiled, strict):
    def model():
        torch.manual_seed(1)
        return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU())

    eager, ours = model(), model()
    run = compiled(ours)
    for _ in range(3):
        x = torch.randn(3, 1, 6, 6)
        eager(x).sum().backward()
        run(x).sum().backward()
    for (name, expected), found in zip(eager.state_dict().items(), ours.state_dict().values(), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5, msg=name)


def test_outputs_that_alias_inputs(compiled):
    def function(x):
        return x, x.view(6, 4), x + 1

    x = torch.randn(4, 6)
    same, view, fresh = compiled(function)(x)
    assert same is x
    assert view.data_ptr() == x.data_ptr() and view.shape == (6, 4)
    torch.testing.assert_close(fresh, x + 1)


def test_copies_are_copies(compiled):
    def function(x):
        y = x * 2
        return x.clone(), y, y.clone(), x.t().contiguous()

    x = torch.randn(4, 6)
    results = compiled(function)(x)
    assert len({t.data_ptr() for t in (x, *results)}) == 5
    for ours, eager in zip(results, function(x), strict=True):
        assert_same(ours, eager)


def test_one_value_returned_twice(compiled):
    def function(x):
        y = x + 1
        return y, y, None, 3, x.shape[0]

    first, second, none, number, size = compiled(function)(torch.randn(3))
    assert first.data_ptr() == second.data_ptr()
    assert none is None and number == 3 and size == 3


def test_inputs_that_share_memory(compiled):
    def function(x, y):
        x.add_(1)
        return y * 2

    def call(f):
        base = torch.arange(8.0)
        return f(base[:6], base[2:]), base

    for ours, eager in zip(call(compiled(function)), call(function), strict=True):
        assert_same(ours, eager)


def test_in_place_update_of_a_weight_is_seen(compiled, strict):
    model, x = nn.Linear(16, 8), torch.randn(4, 16)
    run = compiled(model)
    with torch.no_grad():
        run(x)
        for _ in range(2):
            model.weight.mul_(2)
            assert_same(run(x), model(x), rtol=1e-4, atol=1e-5)


def test_results_outlive_the_compiled_code(compiled):
    results = [compiled(lambda x: x * 2)(torch.full((100,), float(i))) for i in range(4)]
    torch._dynamo.reset()
    results[0].resize_(1000)
    for i, result in enumerate(results[1:], 1):
        assert torch.equal(result, torch.full((100,), 2.0 * i))


# ---- random numbers ----


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.dropout(x, 0.3, True),
        lambda x: torch.rand_like(x) + torch.rand(4, 6),
        lambda x: x + torch.randn(6),
        lambda x: torch.bernoulli(x.sigmoid()),
        lambda x: torch.randint(0, 10, (4,)) + x.sum().int(),
        lambda x: x.clone().uniform_(-1, 1),
        lambda x: torch.randperm(6) + x[0].int(),
    ],
    ids=["dropout", "rand", "randn", "bernoulli", "randint", "uniform_", "randperm"],
)
def test_random_numbers_are_eagers(compiled, strict, function):
    x, run = torch.randn(4, 6), compiled(function)
    for seed in (0, 1):
        torch.manual_seed(seed)
        eager, eager_state = function(x), torch.get_rng_state()
        torch.manual_seed(seed)
        ours, our_state = run(x), torch.get_rng_state()
        torch.testing.assert_close(ours, eager)
        assert torch.equal(our_state, eager_state)


# ---- ops that stay in ATen ----


def test_extern_ops(compiled, caplog):
    def function(x):
        values, indices = torch.topk(x, 3, dim=-1)
        return values * 2, indices, torch.linalg.inv(x[:4, :4]), x[x[:, 0].argsort()]

    x = torch.randn(6, 6)
    with caplog.at_level(logging.WARNING, "ipex"):
        results = compiled(function)(x)
    for ours, eager in zip(results, function(x), strict=True):
        torch.testing.assert_close(ours, eager)


def test_strict_refuses_extern_ops(compiled, strict):
    with pytest.raises(Exception, match="IPEX_STRICT"):
        compiled(lambda x: torch.linalg.inv(x))(torch.eye(3))


def test_custom_operator(compiled):
    @torch.library.custom_op("ipex_test::twice_plus", mutates_args=())
    def twice_plus(x: torch.Tensor, scale: float, others: list[torch.Tensor]) -> torch.Tensor:
        return x * 2 * scale + sum(others)

    @twice_plus.register_fake
    def _(x, scale, others):
        return torch.empty_like(x)

    def function(x):
        return twice_plus(x + 1, 0.5, [x, x * 2]).relu()

    x = torch.randn(4, 6)
    torch.testing.assert_close(compiled(function)(x), function(x))


def test_index_out_of_range(compiled):
    run = compiled(lambda table, i: table[i] * 2)
    table = torch.randn(5, 3)
    torch.testing.assert_close(run(table, torch.tensor([4, -5])), table[[4, 0]] * 2)
    with pytest.raises(IndexError):
        run(table, torch.tensor([5, 0]))


def test_errors_of_aten_keep_their_type(compiled):
    """Also for errors from ATen's own modules, which share pybind11 with ours."""
    with pytest.raises(torch.linalg.LinAlgError, match="positive-definite"):
        compiled(torch.linalg.cholesky)(-torch.eye(4))
    with pytest.raises(torch.linalg.LinAlgError, match="positive-definite"):
        torch.ops.aten._linalg_check_errors(torch.tensor(1, dtype=torch.int32), "linalg.cholesky", is_matrix=True)
    with pytest.raises(torch.linalg.LinAlgError, match="converge"):
        compiled(torch.linalg.eigvalsh)(torch.full((4, 4), float("nan")))


# ---- programs that cannot be compiled ----


def test_masked_fill_of_complex_numbers(compiled):
    run = compiled(lambda x: torch.complex(x, x).masked_fill(x > 0, 0).real)
    x = torch.linspace(-1, 1, 9)
    assert torch.equal(run(x), torch.where(x > 0, 0, x))


def test_complex_numbers_run_in_aten_between_compiled_parts(compiled, caplog, reports, monkeypatch):
    def function(x):
        return torch.view_as_real(torch.fft.fft(x.sin() + 1)) * 2

    x = torch.randn(8)
    monkeypatch.setattr("intel_extension_for_pytorch.compiler.extern._warned", set())
    with caplog.at_level(logging.WARNING, "ipex"):
        torch.testing.assert_close(compiled(function)(x), function(x))
    assert "aten._fft_r2c.default runs in ATen" in caplog.text and "complex64" in caplog.text
    assert sum(report["kernel_steps"] for report in reports) == 2
    assert not any(report["eager"] for report in reports)


def test_checks_of_linear_algebra_run_between_compiled_parts(compiled, reports):
    def function(x):
        return torch.linalg.cholesky(x @ x.mT + 4 * torch.eye(4)).exp().sum()

    x, y = (torch.ones(4, 4, requires_grad=True) for _ in range(2))
    function(x).backward()
    compiled(function)(y).backward()
    torch.testing.assert_close(y.grad, x.grad)
    assert not any(report["eager"] for report in reports)


def test_layouts_that_kernels_of_aten_expect(compiled):
    """ATen's embedding bag assumes contiguous indices: the copy before it must not be removed."""

    def function(table, indices):
        return torch.nn.functional.embedding_bag(indices, table, torch.tensor([0, 3]), mode="sum")

    table, indices = torch.randn(10, 5, requires_grad=True), torch.randint(0, 10, (5, 2))[:, 0]
    torch.testing.assert_close(compiled(function)(table, indices), function(table, indices))


def test_compile_failure_runs_eagerly(compiled, caplog, monkeypatch):
    monkeypatch.setenv("IPEX_INJECT_FAULT", "compile")
    x = torch.randn(4, requires_grad=True)
    with caplog.at_level(logging.WARNING, "ipex"):
        ours = compiled(lambda x: x.sin() * 2)(x)
        ours.sum().backward()
    torch.testing.assert_close(ours, x.sin() * 2)
    torch.testing.assert_close(x.grad, x.cos() * 2)
    assert "IPEX_INJECT_FAULT" in caplog.text


def test_eager_fallback_mutates_once(compiled, monkeypatch):
    monkeypatch.setenv("IPEX_INJECT_FAULT", "compile")
    x = torch.ones(3)
    run = compiled(lambda x: x.add_(1).sum())
    for i in range(3):
        version = x._version
        assert run(x) == 3.0 * (i + 2)
        assert x._version == version + 1


def test_compile_failure_is_an_error_when_strict(compiled, strict, monkeypatch):
    monkeypatch.setenv("IPEX_INJECT_FAULT", "compile")
    with pytest.raises(Exception, match="IPEX_INJECT_FAULT"):
        compiled(lambda x: x + 1)(torch.ones(3))


def test_unknown_target(compiled, strict, monkeypatch):
    monkeypatch.setenv("IPEX_TARGET", "avx9000")
    with pytest.raises(Exception, match="avx512"):
        compiled(lambda x: x + 1)(torch.ones(3))


# ---- options ----


def test_unknown_option_lists_the_known(compiled):
    with pytest.raises(Exception, match=r"unknown option 'fast'.*autotune, fallback, hoist, recompute"):
        compiled(lambda x: x + 1, options={"fast": True})(torch.ones(3))


def test_option_of_the_wrong_type(compiled):
    with pytest.raises(Exception, match="True or False"):
        compiled(lambda x: x + 1, options={"hoist": 3})(torch.ones(3))


def test_unknown_mode_lists_the_known(compiled):
    with pytest.raises(Exception, match=r"unknown mode 'fastest'.*default, max-autotune"):
        compiled(lambda x: x + 1, mode="fastest")(torch.ones(3))


@pytest.mark.parametrize("options", [{"hoist": False}, {"recompute": False}, {"autotune": True}])
def test_options_keep_results(compiled, strict, options):
    model, x = small_model(), torch.randn(5, 6)
    run = compiled(model, options=options)
    with torch.no_grad():
        assert_same(run(x), model(x))
    run(x).sum().backward()


# ---- sizes ----


def test_dynamic_sizes(compiled, strict):
    def function(x, y):
        return torch.softmax(x @ y, -1), x.shape[0] * 2, x.reshape(-1)[1:]

    run = compiled(function, dynamic=True)
    for rows in (3, 5, 17):
        x, y = torch.randn(rows, 4), torch.randn(4, 6)
        for ours, eager in zip(run(x, y), function(x, y), strict=True):
            torch.testing.assert_close(ours, eager)


def test_dynamic_sizes_backward(compiled, strict):
    def function(x):
        return (x * x.shape[0]).tanh().sum(0)

    run = compiled(function, dynamic=True)
    for rows in (3, 5):
        x = torch.randn(rows, 4, requires_grad=True)
        (expected,) = torch.autograd.grad(function(x).sum(), x)
        (found,) = torch.autograd.grad(run(x).sum(), x)
        torch.testing.assert_close(found, expected)


# ---- several models and threads ----


def test_threads(compiled):
    models = [small_model() for _ in range(3)]
    inputs = [torch.randn(5, 6) for _ in range(3)]
    with torch.no_grad():
        expected = [m(x) for m, x in zip(models, inputs, strict=True)]
    failures = []

    def work(index):
        try:
            run = compiled(models[index % 3])
            with torch.no_grad():
                for _ in range(20):
                    torch.testing.assert_close(run(inputs[index % 3]), expected[index % 3])
        except Exception as error:  # noqa: BLE001 - reported by the main thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]


# ---- reports ----


def test_explain(ipex_module):
    model = small_model()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    explanation = ipex_module.explain(model, torch.randn(5, 6))
    report = explanation.to_dict()
    assert [g["kind"] for g in report["graphs"]] == ["forward", "backward"]
    assert report["extern_ops"] == {}
    assert report["graphs"][0]["library_steps"] == 1 and report["graphs"][0]["kernel_steps"] >= 1
    text = str(explanation)
    assert "forward" in text and "planned" in text and "test_backend.py" not in text.splitlines()[0]
    assert re.search(r"  chosen   matmul 5x6 f32 by 6x\d+ f32.* - (kernel|library): \w+", text)
    assert all(p.grad is None for p in model.parameters())
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


def test_profile(ipex_module, tmp_path):
    model, x = small_model().eval(), torch.randn(5, 6)
    with torch.no_grad():
        explanation = ipex_module.explain(model, x, profile=True)
    profile, report = explanation.profile, explanation.graphs[0]
    running = [step for step in report["steps"] if "pack" not in step["name"]]
    assert sorted(s.name for s in profile.steps) == sorted(step["name"] for step in running)
    assert [s.total_ms for s in profile.steps] == sorted((s.total_ms for s in profile.steps), reverse=True)
    assert 0 < sum(s.total_ms for s in profile.steps) <= profile.ms * 1.5
    for step in profile.steps:
        assert step.runs == 1 and step.gbs > 0 and step.limit > 0
        assert step.sources
    assert sum(s.gflops > 0 for s in profile.steps) >= 2, "the products of both layers"
    profile.write_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [e["name"] for e in events] == [step["name"] for step in running] and all(e["dur"] > 0 for e in events)
    assert json.loads(json.dumps(explanation.to_dict()))["profile"]["calls"] == profile.calls
    assert f"{profile.calls} calls" in str(explanation)


def test_profile_of_training_and_of_what_runs_eagerly(ipex_module, caplog):
    profile = ipex_module.explain(small_model(), torch.randn(5, 6), profile=True).profile
    assert {s.graph for s in profile.steps} == {0, 1}
    profile = ipex_module.explain(lambda x: torch.view_as_complex(x).abs(), torch.randn(5, 2), profile=True).profile
    assert profile.calls > 0


def test_steps_are_visible_to_the_profiler(compiled, ipex_module):
    model = compiled(lambda x: torch.special.zeta(x.relu() + 1, x.exp()).sum())
    x = torch.rand(8) + 1
    with ipex_module.record_reports() as reports:
        expected = model(x)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        assert torch.equal(model(x), expected)
    names = [event.name for event in profiler.events()]
    for step in reports[0]["steps"]:
        assert names.count(f"ipex::{step['name']}") == 1


def test_reports_are_recorded(compiled, ipex_module):
    with ipex_module.record_reports() as reports, torch.no_grad():
        compiled(lambda x: x.relu() + 1)(torch.randn(4))
    assert [r["kind"] for r in reports] == ["inference"]
    assert reports[0]["native_ops"] == 2 and reports[0]["extern_steps"] == 0


def test_environment(ipex_module, capsys):
    from intel_extension_for_pytorch.cli import main

    env = ipex_module.environment()
    assert env["target"] in env["supported_targets"]
    assert {k["name"] for k in env["knobs"]} >= {"IPEX_LOG", "IPEX_STRICT", "IPEX_TARGET"}
    assert main(["env"]) == 0
    assert "IPEX_CACHE" in capsys.readouterr().out
    assert main(["explain", "missing.py:f"]) == 3
