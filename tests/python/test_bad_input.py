"""Difficult and invalid input: each case gives eager's result or a clear error, and none crashes."""

import os
import stat
import subprocess
import sys
import textwrap

import pytest
import torch
from comparison import assert_close_to_eager
from conftest import BACKEND

needs_ipex = pytest.mark.needs_ipex


def check(compiled, fn, *args, **options):
    assert_close_to_eager(compiled(fn, **options)(*args), fn(*args), strides=True)


def check_mutation(compiled, fn, make_args):
    """Requires eager's results and the same changes of the arguments."""
    eager_args, our_args = make_args(), make_args()
    eager = fn(*eager_args)
    ours = compiled(fn)(*our_args)
    assert_close_to_eager(ours, eager)
    assert_close_to_eager(our_args, eager_args)


def run_python(code, **environment):
    """Runs code in a new process, because knobs such as the target are fixed after the first compilation."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


SMALL_PROGRAM = """
    import torch
    x = torch.randn(5, 7)
    ours = torch.compile(lambda x: torch.relu(x) * 2 + x.sum(), backend="ipex")(x)
    torch.testing.assert_close(ours, torch.relu(x) * 2 + x.sum())
    print("same as eager")
"""


# Ops


def test_unknown_op(compiled):
    def fn(x):
        return torch.linalg.slogdet(x @ x.T + torch.eye(6))[1] * 2 + torch.igamma(x.abs() + 1, x.abs()).sum()

    check(compiled, fn, torch.randn(6, 6))


@needs_ipex
def test_unknown_op_is_named_under_strict(compiled, strict):
    with pytest.raises(Exception, match="igamma"):
        compiled(lambda x: torch.igamma(x, x) + 1)(torch.rand(6))


@torch.library.custom_op("ipex_tests::scaled", mutates_args=())
def scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
    return x * factor


@scaled.register_fake
def _(x, factor):
    return torch.empty_like(x)


@torch.library.custom_op("ipex_tests::bump_", mutates_args={"x"})
def bump_(x: torch.Tensor) -> None:
    x.add_(1)


def test_custom_op(compiled):
    check(compiled, lambda x: torch.ops.ipex_tests.scaled(x.sin(), 3.0).cos() + x, torch.randn(4, 5))


def test_custom_op_that_mutates(compiled):
    def fn(x):
        y = x * 2
        torch.ops.ipex_tests.bump_(y)
        torch.ops.ipex_tests.bump_(x)
        return y + x

    check_mutation(compiled, fn, lambda: (torch.ones(3, 4),))


def test_custom_op_that_raises(compiled):
    @torch.library.custom_op("ipex_tests::refuses", mutates_args=())
    def refuses(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("no such luck")

    refuses.register_fake(torch.empty_like)
    with pytest.raises(ValueError, match="no such luck"):
        compiled(lambda x: torch.ops.ipex_tests.refuses(x + 1) * 2)(torch.randn(3))


# Tensors


def test_complex(compiled):
    check(compiled, lambda x: torch.view_as_real(torch.view_as_complex(x) * (1 + 2j)).sum(-1) + 1, torch.randn(4, 2))
    check(compiled, lambda z: (z * z.conj()).abs() + z.real, torch.randn(5, dtype=torch.complex64))


def test_sparse(compiled):
    dense = torch.eye(4) * torch.arange(1.0, 5.0)
    check(compiled, lambda a, b: torch.sparse.mm(a, b).relu() + 1, dense.to_sparse(), torch.randn(4, 3))


def test_quantized_storage_type(compiled):
    check(compiled, lambda x: x.to(torch.float8_e4m3fn).to(torch.float32) + 1, torch.randn(4, 9))


def test_meta_tensor(compiled):
    """A meta tensor has no memory: the result has eager's shape, or there is an error."""
    try:
        result = compiled(lambda x: x * 2 + 1)(torch.empty(3, 4, device="meta"))
    except Exception as error:
        assert str(error)
    else:
        assert (result.device.type, result.shape) == ("meta", (3, 4))


@pytest.mark.parametrize("shape", [(0,), (0, 5), (3, 0, 2)])
def test_no_elements(shape, compiled):
    check(compiled, lambda x: (x.exp() + 1, x.sum(0), x.sum(), x.t() if x.dim() == 2 else x * 2), torch.randn(shape))


def test_no_rows_through_a_layer(compiled):
    layer = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.LayerNorm(3), torch.nn.Softmax(-1))
    check(compiled, layer, torch.randn(0, 5))


def test_expanded_input(compiled):
    check(compiled, lambda x: (x * 2 + x.sum(1, keepdim=True), x.t() + 1), torch.randn(4, 1).expand(4, 6))


def test_writing_to_an_expanded_input(compiled):
    def fn(x):
        x.add_(1)
        return x * 2

    with pytest.raises(RuntimeError):
        fn(torch.zeros(1).expand(4))
    with pytest.raises(RuntimeError):
        compiled(fn)(torch.zeros(1).expand(4))


def test_overlapping_strides(compiled):
    check(compiled, lambda x: x.exp().sum(0) + x[0], torch.arange(10.0).as_strided((4, 5), (1, 1)))


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randn(6, 4).t(),
        lambda: torch.randn(8, 9)[1::2, ::3],
        lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        lambda: torch.randn(40)[3:],
    ],
    ids=["transposed", "strided", "channels_last", "offset"],
)
def test_non_contiguous_input(make, compiled):
    check(compiled, lambda x: (x.relu() + 1, x.sum(-1), (x * 2).transpose(0, -1)), make())


def test_reversed_operand_of_an_aten_call(compiled):
    """ATen does not support negative strides, so a flipped operand is copied first."""
    check(compiled, lambda x: torch.linalg.det(x.flip(0)) + x.flip(1)[0], torch.randn(3, 3))


def test_misaligned_input(compiled):
    """Vector loads must not assume more than the alignment of one element."""
    base = torch.randn(1000)
    for offset in (1, 3, 7):
        check(compiled, lambda x: x.exp() * 2 - x.mean(), base[offset : offset + 517])


def test_same_tensor_twice(compiled):
    def fn(x, y):
        x.mul_(2)
        return x + y

    def make():
        x = torch.ones(5)
        return x, x

    check_mutation(compiled, fn, make)


def test_aliasing_inputs(compiled):
    def make():
        base = torch.arange(12.0)
        return base[:8], base[4:]

    def fn(x, y):
        x.add_(1)
        return x * 2 + y

    check_mutation(compiled, fn, make)
    check(compiled, lambda x, y: x * 2 + y, *make())


def test_output_that_aliases_an_input(compiled):
    def fn(x):
        return x.view(-1), x.t(), x + 1

    x = torch.randn(3, 4)
    flat, transposed, _ = compiled(fn)(x)
    assert flat.data_ptr() == transposed.data_ptr() == x.data_ptr()
    assert transposed.stride() == x.t().stride()


def test_input_mutated_then_returned(compiled):
    def fn(x, y):
        x.copy_(y)
        x[1:].mul_(3)
        return x, x.sum()

    check_mutation(compiled, fn, lambda: (torch.zeros(4, 3), torch.ones(4, 3)))


@needs_ipex
def test_mutation_bumps_the_version_once(compiled):
    def fn(x):
        x.add_(1)
        return x * 2

    eager, ours = torch.ones(4), torch.ones(4)
    fn(eager)
    compiled(fn)(ours)
    assert torch.equal(ours, eager)
    assert ours._version == eager._version


# Values


@pytest.mark.parametrize("index", [7, -8, 10**12])
def test_index_out_of_range(index, compiled):
    table, indices = torch.randn(7, 3), torch.tensor([0, index, 1])
    with pytest.raises((IndexError, RuntimeError)):
        table[indices]
    with pytest.raises(IndexError, match="range|bounds"):
        compiled(lambda t, i: t[i] * 2)(table, indices)


def test_embedding_index_out_of_range(compiled):
    layer = torch.nn.Embedding(5, 4)
    with pytest.raises(IndexError, match="range|bounds"):
        compiled(layer)(torch.tensor([1, 5]))
    check(compiled, layer, torch.tensor([1, 4]))


def test_gather_and_scatter_out_of_range(compiled):
    x, index = torch.randn(3, 4), torch.tensor([[0, 4]])
    with pytest.raises((IndexError, RuntimeError), match="range|bounds"):
        compiled(lambda x, i: x.gather(1, i) + 1)(x, index)
    with pytest.raises((IndexError, RuntimeError), match="range|bounds"):
        compiled(lambda x, i: x.scatter_add(1, i, torch.ones(1, 2)) + 1)(x, index)


NO_WRAP = {
    "embedding": lambda x, i: torch.nn.functional.embedding(i, x),
    "embedding_bag": lambda x, i: torch.nn.functional.embedding_bag(i[None], x, mode="sum"),
    "embedding_bag by offsets": lambda x, i: torch.nn.functional.embedding_bag(i, x, i[:1] * 0, mode="max"),
    "index_select": lambda x, i: x.index_select(0, i) + 1,
    "gather": lambda x, i: x.gather(0, i[:, None]) + 1,
    "scatter": lambda x, i: x.scatter(0, i[:, None], 7.0),
    "scatter_add": lambda x, i: x.scatter_add(0, i[:, None], x),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, i[:, None], x, "amax"),
    "index_add": lambda x, i: x.index_add(0, i, x[:2], alpha=2),
    "index_copy": lambda x, i: x.index_copy(0, i, x[:2]),
    "index_reduce": lambda x, i: x.index_reduce(0, i, x[:2], "prod"),
    "cross_entropy": lambda x, i: torch.nn.functional.cross_entropy(x[:2], i),
}


@pytest.mark.parametrize("name", NO_WRAP)
def test_negative_index_is_out_of_range(name, compiled, strict):
    """Ops that do not accept negative indices raise an error; valid indices give eager's result."""
    function, x = NO_WRAP[name], torch.randn(5, 4)
    check(compiled, function, x, torch.tensor([3, 1]))
    refused = "range|bounds|found idx to be -1"
    with pytest.raises((IndexError, RuntimeError), match=refused) as eager:
        function(x, torch.tensor([1, -1]))
    with pytest.raises(eager.type, match=refused):  # test_refusals.py compares the texts
        compiled(function)(x, torch.tensor([1, -1]))


def test_positions_in_a_part_of_a_dimension(compiled, strict):
    """The bounds of an index into the result of a gather are those of the result, not of the gathered dimension."""
    x, columns = torch.randn(5, 10), torch.tensor([3, 0, 9, 2])
    run = compiled(lambda x, i, j: x.gather(1, i.expand(3, 4))[j] * 2)
    for rows in ([-1, 0], [2, 1], [-3, 1]):
        j = torch.tensor(rows)
        assert torch.equal(run(x, columns, j), x.gather(1, columns.expand(3, 4))[j] * 2)
    with pytest.raises(IndexError):
        run(x, columns, torch.tensor([3, 0]))


@pytest.mark.parametrize("dynamic", [False, True])
def test_what_a_model_asserts_of_its_data(compiled, strict, dynamic):
    """F.one_hot contains assertions about its data, as operators without results."""
    run = compiled(lambda x: torch.nn.functional.one_hot(x, 4), dynamic=dynamic)
    for classes in ([0, 3, 1], [[2, 2], [3, 0]]):
        x = torch.tensor(classes)
        assert torch.equal(run(x), torch.nn.functional.one_hot(x, 4))
    for classes, message in (([0, 4, 1], "smaller than num_classes"), ([0, -1, 1], "non-negative")):
        with pytest.raises(RuntimeError, match=message):
            run(torch.tensor(classes))


def test_negative_indices_wrap(compiled):
    table, indices = torch.randn(7, 3), torch.tensor([-1, -7, 6])
    check(compiled, lambda t, i: t[i] + t[-2], table, indices)
    check(compiled, lambda t, i: t.take(i) + 1, table, indices)
    check(compiled, lambda t, i: t.index_fill(0, i[:2], 3.0), table, indices)
    check(compiled, lambda t, i: t.take_along_dim(i[:, None], 0) + 1, table, indices)
    check(compiled, lambda t, i: t.index_put((i,), t[:3], accumulate=True), table, indices)


DIVISIONS = {
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "fmod": torch.fmod,
    "trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "inside": lambda a, b: ((a + 1) // b) * 2,
    "in place": lambda a, b: a.clone().floor_divide_(b).remainder_(5),
    "of a number": lambda a, b: 7 % b,
    "of an unread quotient": lambda a, b: (a // b, a + 1)[1],
    "of a masked quotient": lambda a, b: torch.where(b == 0, 0, a // b.clamp(max=3)),
    "of a part": lambda a, b: (a % b)[:1],
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", DIVISIONS)
def test_integer_division_by_zero(name, dynamic, compiled, strict):
    run = compiled(DIVISIONS[name], dynamic=dynamic)
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64):
        a, zeros = torch.arange(1, 9).to(dtype), (torch.arange(8) % 4).to(dtype)
        with pytest.raises(RuntimeError, match="^ZeroDivisionError$") as raised:
            run(a, zeros)
        assert raised.type is RuntimeError
        assert torch.equal(run(a, zeros + 1), DIVISIONS[name](a, zeros + 1))
    # An empty dividend raises no error.
    assert run(torch.empty(0, 8, dtype=torch.int64), torch.ones(8, dtype=torch.int64)).shape[0] in (0, 8)
    assert run(torch.ones(8, dtype=torch.float32), torch.zeros(8)).shape[0] in (1, 8)


def test_integer_division_by_a_number_that_is_zero(compiled, strict):
    """The divisor is zero, or becomes zero in the type that eager converts it to."""
    a = torch.arange(4, dtype=torch.uint8)
    divisions = (
        lambda a: a // 0, lambda a: a % False, lambda a: a.bool() // 0, lambda a: torch.fmod(a, 256),
        lambda a: a // torch.tensor(256), lambda a: a % torch.zeros(3, 4, dtype=torch.bool),
    )  # fmt: skip
    for divide in divisions:
        with pytest.raises(RuntimeError, match="^ZeroDivisionError$"):
            compiled(divide)(a)
    assert compiled(lambda a: a // torch.zeros(4, dtype=torch.int64))(torch.empty(0, 4)).shape == (0, 4)
    nothing = torch.empty(0, 4, dtype=torch.int64)
    zeros = torch.zeros(4, dtype=torch.int64)
    assert compiled(lambda a, b: (a // b, a % 0))(nothing, zeros)[0].shape == (0, 4)
    assert torch.equal(compiled(lambda a: (a // 256, a % -3))(a.int())[0], a.int() // 256)
    assert torch.equal(compiled(lambda a: torch.gcd(a, a * 0))(a), a)


def test_integer_division_by_zero_in_training(compiled, strict):
    def step(x, counts):
        return (x * (counts // (counts - 3))).sum()

    x = torch.ones(4, requires_grad=True)
    run = compiled(step)
    run(x, torch.arange(4, 8)).backward()
    assert torch.equal(x.grad, torch.tensor([4.0, 2.0, 2.0, 1.0]))
    with pytest.raises(RuntimeError, match="^ZeroDivisionError$"):
        run(x, torch.arange(4))


@needs_ipex
def test_divisors_that_cannot_be_zero_are_not_checked(strict):
    import intel_extension_for_pytorch as ipex

    def run(a, b):
        n = torch.arange(64)
        return (
            a // b.clamp(min=1),
            a % (n + 1),
            a // b.clamp(-9, -2),
            a // 3,
            a % torch.tensor([2, 5] * 32),
        )

    a = torch.arange(64)
    steps = [step["name"] for graph in ipex.explain(run, a, a).to_dict()["graphs"] for step in graph["steps"]]
    assert "check" not in steps
    checked = ipex.explain(lambda a, b: (a // (b + 1), a % b.clamp(max=5).to(torch.uint8)), a, a + 1)
    assert [s["name"] for g in checked.to_dict()["graphs"] for s in g["steps"]].count("check") == 2


@needs_ipex
def test_lowest_integer_divided_by_minus_one():
    """Eager ends the process with SIGFPE here. Compiled code must not."""
    done = run_python("""
        import torch
        x, y = torch.tensor([torch.iinfo(torch.int64).min, 5]), torch.tensor([-1, -1])
        run = torch.compile(lambda x, y: torch.div(x, y, rounding_mode="trunc"), backend="ipex")
        assert run(x, y)[1] == -5
    """, IPEX_STRICT="1")  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_nan_and_infinity(compiled):
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 3.0])
    check(compiled, lambda x: (x.softmax(0), x.max(), x.relu(), x.clamp(0, 1), x.nan_to_num(), x.sort().values), x)


# Options, knobs, files


@needs_ipex
def test_unknown_option(compiled):
    with pytest.raises(Exception, match="no_such_option") as caught:
        compiled(lambda x: x + 1, options={"no_such_option": 1})(torch.ones(2))
    assert "known" in str(caught.value).lower() or "options" in str(caught.value).lower()


@needs_ipex
def test_unknown_target():
    done = run_python(SMALL_PROGRAM, IPEX_TARGET="z80", IPEX_STRICT="1")
    assert done.returncode > 0, done.stdout
    assert "z80" in done.stderr and "avx2" in done.stderr


TARGETS = (("avx2", "avx2"), ("avx512", "avx512f"), ("avx512_bf16", "avx512_bf16"))  # with the CPU's name of it


@needs_ipex
@pytest.mark.parametrize("target", [pytest.param(t, marks=pytest.mark.lacks_cpu(f)) for t, f in TARGETS[1:]])
def test_target_the_cpu_lacks(target):
    done = run_python(SMALL_PROGRAM, IPEX_TARGET=target)
    assert done.returncode > 0, done.stdout
    assert target in done.stderr


@needs_ipex
@pytest.mark.parametrize("target", [pytest.param(t, marks=pytest.mark.needs_cpu(f)) for t, f in TARGETS])
def test_target_the_cpu_has(target):
    done = run_python(SMALL_PROGRAM, IPEX_TARGET=target, IPEX_STRICT="1", IPEX_CACHE="off")
    assert "same as eager" in done.stdout, done.stderr


@needs_ipex
def test_read_only_cache(tmp_path):
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    done = run_python(SMALL_PROGRAM, IPEX_CACHE=str(tmp_path))
    tmp_path.chmod(stat.S_IRWXU)
    assert "same as eager" in done.stdout, done.stderr


@needs_ipex
def test_cache_path_that_cannot_be_a_directory(tmp_path):
    """Stands for a read-only directory, because the test may run as root."""
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    done = run_python(SMALL_PROGRAM, IPEX_CACHE=str(blocked / "cache"))
    assert "same as eager" in done.stdout, done.stderr


@needs_ipex
def test_damaged_cache_entry(tmp_path):
    first = run_python(SMALL_PROGRAM, IPEX_CACHE=str(tmp_path))
    assert "same as eager" in first.stdout, first.stderr
    entries = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert entries
    for path in entries:
        data = path.read_bytes()
        path.write_bytes(data[: len(data) // 2] + b"\0garbage")
    second = run_python(SMALL_PROGRAM, IPEX_CACHE=str(tmp_path))
    assert "same as eager" in second.stdout, second.stderr


@needs_ipex
def test_cache_write_fault(tmp_path):
    done = run_python(SMALL_PROGRAM, IPEX_CACHE=str(tmp_path), IPEX_INJECT_FAULT="cache_write")
    assert "same as eager" in done.stdout, done.stderr


@needs_ipex
def test_compile_fault_falls_back_with_a_warning():
    done = run_python(SMALL_PROGRAM, IPEX_INJECT_FAULT="compile", IPEX_CACHE="off", IPEX_STRICT="0")
    assert "same as eager" in done.stdout, done.stderr
    assert "arning" in done.stderr or "ipex" in done.stderr.lower(), "no word of the failed compile"


@needs_ipex
def test_compile_fault_is_an_error_under_strict():
    done = run_python(SMALL_PROGRAM, IPEX_INJECT_FAULT="compile", IPEX_CACHE="off", IPEX_STRICT="1")
    assert done.returncode > 0, done.stdout
    assert "IPEX_INJECT_FAULT" in done.stderr or "injected" in done.stderr.lower(), done.stderr


@needs_ipex
def test_error_inside_a_model_leaves_the_process_usable(compiled, monkeypatch):
    monkeypatch.setenv("IPEX_STRICT", "1")
    with pytest.raises(Exception, match="igamma"):
        compiled(lambda x: torch.igamma(x, x))(torch.rand(3))
    monkeypatch.delenv("IPEX_STRICT")
    torch._dynamo.reset()
    check(compiled, lambda x: torch.igamma(x, x) + 1, torch.rand(3))


def test_backend_under_test_is_registered():
    assert BACKEND in torch._dynamo.list_backends(exclude_tags=())
