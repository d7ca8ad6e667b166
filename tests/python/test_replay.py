"""`make replay`: two compilations produce the same texts, and a comparison reports differences."""

import json
import zipfile

import pytest
import replay
import replay_models

pytestmark = pytest.mark.needs_ipex


def write(folder, texts):
    folder.mkdir()
    with zipfile.ZipFile(folder / "texts.zip", "w") as archive:
        for path, text in texts.items():
            archive.writestr(path, text)
    (folder / "digests.json").write_text(json.dumps({path: str(hash(text)) for path, text in texts.items()}))
    return folder


def test_the_same_each_time():
    first, second = (dict(replay.texts_of(replay_models.RUNS["dlrm-infer-bf16"])) for _ in range(2))
    assert first == second
    for isa in replay.ISAS:
        forms = {path.rpartition("/")[2] for path in first if f"/{isa}/" in path}
        assert forms == {"graph", "steps", "lowered", "scheduled", "llvm"}


def test_differences_are_named(tmp_path, capsys):
    same = {"a/0-inference/avx2/k0/llvm": "one\ntwo", "a/0-inference/avx2/k1/llvm": "three"}
    before = write(tmp_path / "before", same)
    assert not replay.compare(before, write(tmp_path / "same", same))
    changed = {"a/0-inference/avx2/k0/llvm": "one\nTWO", "a/0-inference/avx2/k2/llvm": "four"}
    assert replay.compare(before, write(tmp_path / "after", changed))
    printed = capsys.readouterr().out
    assert "2 texts, 1 changed, 1 added, 1 gone" in printed
    assert "changed a/0-inference/avx2/k0: llvm" in printed
    assert "added a/0-inference/avx2/k2: llvm" in printed and "gone a/0-inference/avx2/k1: llvm" in printed
    assert "-two" in printed and "+TWO" in printed
