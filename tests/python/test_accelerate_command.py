"""The adapter for Hugging Face Accelerate on the command line: configuration files, options, ranks and `run`."""

import argparse
import logging
import sys

import accelerate
import pytest
from accelerate.commands import launch
from accelerate.commands.config import config_args
from accelerate_state import clean_state
from intel_extension_for_pytorch.integrations import accelerate as adapter
from intel_extension_for_pytorch.integrations.accelerate import __main__ as command


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    yield from clean_state(monkeypatch)


@pytest.fixture
def enabled():
    adapter.enable()


YAML = """
compute_environment: LOCAL_MACHINE
distributed_type: {type}
mixed_precision: bf16
num_machines: 1
num_processes: {processes}
use_cpu: true
main_process_port: 29512
"""


def arguments_of(*words):
    parser = launch.launch_command_parser()
    return launch._validate_launch_command(parser.parse_args([*words, "script.py", "--epochs", "3"]))[0]


@pytest.mark.parametrize(
    "entries, expected",
    [
        ("ipex_config: {ipex: true}", ("true", "false")),
        ("ipex_config: {ipex: false}", ("false", "false")),
        ("ipex_config: {ipex_enabled: true, ipex_fusion_enabled: true}", ("true", "true")),
        ("ipex_config: {ipex: true, use_xpu: false}", ("true", "false")),
        ("ipex_config: {}", ("false", "false")),
        ("debug: false", ("false", "false")),
    ],
)
@pytest.mark.parametrize("ending", ["yaml", "json"])
def test_configuration_file(enabled, tmp_path, entries, expected, ending):
    import json

    import yaml

    text = YAML.format(type="'NO'", processes=1) + entries
    path = tmp_path / f"config.{ending}"
    path.write_text(text if ending == "yaml" else json.dumps(yaml.safe_load(text)))
    words, environment = launch.prepare_simple_launcher_cmd_env(arguments_of("--config_file", str(path)))
    assert (environment["ACCELERATE_USE_IPEX"], environment["ACCELERATE_USE_IPEX_FUSION"]) == expected
    assert environment["ACCELERATE_MIXED_PRECISION"] == "bf16"
    assert words == [sys.executable, "-m", adapter.__name__, "run", "script.py", "--epochs", "3"]
    # Written again, it means the same.
    config, unchanged = (config_args.load_config_from_file(str(path)) for _ in range(2))
    config.to_yaml_file(tmp_path / "again.yaml")
    again = config_args.load_config_from_file(str(tmp_path / "again.yaml"))
    assert again == unchanged and again.ipex_config == unchanged.ipex_config


@pytest.mark.parametrize(
    "entries, message",
    [
        ("ipex_config: true", "expected entries such as"),
        ("ipex_config: {ipx: true}", "unknown key 'ipx'; known are ipex"),
        ("ipex_config: {use_xpu: true}", "unknown key 'use_xpu'"),
        ("ipex_config: {ipex: maybe}", "ipex_config: ipex: expected true or false"),
        ("ipex_config: {ipex: true, ipex_enabled: false}", "mean the same"),
        ("ipex_config: {ipex: false, ipex_fusion_enabled: true}", "turn on use_ipex"),
        ("ipx_config: {ipex: true}", "had unknown keys"),
    ],
)
def test_bad_configuration_file(enabled, tmp_path, entries, message):
    path = tmp_path / "config.yaml"
    path.write_text(YAML.format(type="'NO'", processes=1) + entries)
    with pytest.raises(ValueError, match=message):
        arguments_of("--config_file", str(path))


@pytest.mark.parametrize(
    "options, expected",
    [
        ([], ("false", "false")),
        (["--ipex"], ("true", "false")),
        (["--ipex_enabled"], ("true", "false")),
        (["--ipex-enabled", "--ipex-fusion-enabled"], ("true", "true")),
    ],
)
def test_options(enabled, options, expected):
    _, environment = launch.prepare_simple_launcher_cmd_env(arguments_of("--cpu", "--num_processes=1", *options))
    assert (environment["ACCELERATE_USE_IPEX"], environment["ACCELERATE_USE_IPEX_FUSION"]) == expected
    assert "CCL_WORKER_COUNT" not in environment


def test_options_win_over_the_file(enabled, tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(YAML.format(type="'NO'", processes=1) + "ipex_config: {ipex: false}")
    _, environment = launch.prepare_simple_launcher_cmd_env(arguments_of("--config_file", str(path), "--ipex"))
    assert environment["ACCELERATE_USE_IPEX"] == "true"


def test_fusion_alone(enabled):
    with pytest.raises(ValueError, match="--ipex"):
        launch.prepare_simple_launcher_cmd_env(arguments_of("--cpu", "--ipex_fusion_enabled"))


def test_ranks(enabled, tmp_path, monkeypatch):
    """Of several ranks, each has its threads where the launcher puts them, not on the first cores."""
    path = tmp_path / "config.yaml"
    entries = "mpirun_config: {mpirun_ccl: '2', mpirun_hostfile: hosts}\nipex_config: {ipex: true}"
    path.write_text(YAML.format(type="MULTI_CPU", processes=2) + entries)
    monkeypatch.setattr("accelerate.utils.launch._get_mpirun_args", lambda: ("mpirun", "-f", "-n", "-ppn", ""))
    words, environment = launch.prepare_simple_launcher_cmd_env(arguments_of("--config_file", str(path)))
    script = [sys.executable, "-m", adapter.__name__, "run", "script.py", "--epochs", "3"]
    assert words == ["mpirun", "-f", "hosts", "-ppn", "2", "-n", "2", *script]
    assert environment["CCL_WORKER_COUNT"] == "2" and environment["MASTER_PORT"] == "29512"
    assert "KMP_AFFINITY" not in environment
    words, environment = launch.prepare_simple_launcher_cmd_env(
        arguments_of("--config_file", str(path), "--mpirun_ccl", "3")
    )
    assert environment["CCL_WORKER_COUNT"] == "3"
    monkeypatch.setenv("KMP_AFFINITY", "disabled")
    assert "KMP_AFFINITY" in launch.prepare_simple_launcher_cmd_env(arguments_of("--config_file", str(path)))[1]


def test_torchrun_of_accelerate(enabled):
    """The launcher of FSDP, which starts ranks by torch.distributed.run."""
    args = arguments_of("--use_fsdp", "--num_processes=2", "--main_process_port=0", "--ipex", "-m")
    environment = launch.prepare_multi_gpu_env(args)
    assert environment["ACCELERATE_USE_IPEX"] == "true"
    assert (args.training_script, args.module) == (adapter.__name__, True)
    assert args.training_script_args == ["run", "-m", "script.py", "--epochs", "3"]


def test_other_programs(enabled, caplog):
    with caplog.at_level(logging.WARNING, "IPEX"):
        words, _ = launch.prepare_simple_launcher_cmd_env(arguments_of("--cpu", "--no_python"))
    assert words == ["script.py", "--epochs", "3"] and "must call enable() itself" in caplog.text


@pytest.mark.parametrize("answer", ["yes", "no", ""])
def test_config_asks(enabled, tmp_path, monkeypatch, capsys, answer):
    """The question comes first; then come those of this release."""
    from accelerate.commands.config import cluster, config

    if "ipex_config" in cluster.get_cluster_input.__code__.co_varnames:
        pytest.skip(f"accelerate {accelerate.__version__} asks by itself")
    answers = iter([answer])
    monkeypatch.setattr("builtins.input", lambda text: print(text) or next(answers))
    plain = config_args.ClusterConfig("LOCAL_MACHINE", "NO", "bf16", use_cpu=True, debug=False, num_processes=1)
    monkeypatch.setattr(config, "get_user_input", lambda: plain)
    with command.patched() as patches:
        command._ask(patches)
        config.config_command(argparse.Namespace(config_file=str(tmp_path / "config.yaml")))
    assert command.QUESTION in capsys.readouterr().out
    written = config_args.load_config_from_file(str(tmp_path / "config.yaml"))
    assert written.ipex_config == {"ipex": answer == "yes"} and written.mixed_precision == "bf16"


def test_run(tmp_path, monkeypatch, capsys):
    """A script sees the arguments, the folder and the name that python gives it."""
    (tmp_path / "helper.py").write_text("VALUE = 7\n")
    text = (
        "import sys, helper\nfrom accelerate.utils import DynamoBackend\n"
        "print(__name__, sys.argv[1:], helper.VALUE, DynamoBackend.IPEX.value)\n"
    )
    (tmp_path / "script.py").write_text(text)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    monkeypatch.setattr(sys, "argv", ["accelerate", "run", str(tmp_path / "script.py"), "-x", "1"])
    command.main()
    monkeypatch.setattr(sys, "argv", ["accelerate", "run", "-m", "script", "y"])
    command.main()
    assert capsys.readouterr().out == "__main__ ['-x', '1'] 7 IPEX\n__main__ ['y'] 7 IPEX\n"
    for words in ([], ["-m"]):
        with pytest.raises(
            SystemExit, match="usage: python -m intel_extension_for_pytorch.integrations.accelerate run"
        ):
            command.run(words)
