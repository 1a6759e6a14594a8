"""Test that truncated, damaged or forged files from untrusted sources are refused, and that no code in them is run."""

import gzip
import json
import os
import pickle
import tracemalloc
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import hkrr
from hkrr._storage.safetensors_format import pack
from support.hostile_files import MODELS, data_of, load, refused
from support.models_to_save import apply, fitted, new_rows
from support.mutated_model_files import deep, parts, with_table
from support.platforms import posix_only

several = settings(max_examples=60, deadline=None)


@several
@given(name=st.sampled_from(MODELS), share=st.floats(0, 1, exclude_max=True))
def test_a_truncated_file_is_refused(name, share):
    data = data_of(name)
    refused(data[: int(share * len(data))])


@several
@given(name=st.sampled_from(MODELS), share=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_is_detected(name, share, bit):
    data = bytearray(data_of(name))
    data[int(share * len(data))] ^= 1 << bit
    try:
        model = load(bytes(data))
    except hkrr.ModelFileError:
        return
    # The file can be valid only if the flipped bit has not changed a value: "1e5" and "1E5" are the same number.
    assert_array_equal(apply(model, new_rows()), apply(fitted(name), new_rows()), strict=True)


@several
@given(name=st.sampled_from(MODELS), data=st.data())
def test_wrong_lengths_are_refused(name, data):
    original = data_of(name)
    length = data.draw(st.one_of(st.integers(0, 2**64 - 1), st.integers(0, len(original))))
    if length != int.from_bytes(original[:8], "little"):
        refused(length.to_bytes(8, "little") + original[8:])


@several
@given(junk=st.binary(max_size=200))
def test_other_files_are_refused(junk):
    refused(junk)


@several
@given(seed=st.integers(0, 2**32))
def test_deep_json_is_refused(seed):
    refused(deep(data_of("SIR"), Random(seed)))


def test_refusing_a_file_takes_little_memory():
    """Test that refusing a file with a megabyte of forged JSON or a wrong length takes less than 50 MB.

    The JSON could take thirty megabytes after parsing.
    """
    many = "[" + "[]," * 300_000 + "1]"
    table = with_table(data_of("SIR"), lambda table: many.encode())
    header = with_table(data_of("SIR"), lambda table: table["__metadata__"].update(hkrr=many))
    longer = with_table(data_of("SIR"), lambda table: b" " * (2 << 20) + b"{}")
    tracemalloc.start()
    try:
        for data in (table, header, longer, (2**40).to_bytes(8, "little") + table):
            refused(data)
        assert tracemalloc.get_traced_memory()[1] < 50 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads the memory use from /proc")
def test_files_larger_than_memory_are_refused(tmp_path):
    """Test that a file whose content does not fit into memory is refused.

    The file is sparse, so it takes little space on the disk. Its size agrees with its table of tensors.
    """
    import resource

    n_bytes = 1 << 42
    table = {"dtype": "F64", "shape": [n_bytes // 8], "data_offsets": [0, n_bytes]}
    header = json.dumps({"__metadata__": {"hkrr": '{"format":1,"library":"0"}'}, "x": table}).encode()
    with open(tmp_path / "hole", "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + n_bytes)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (in_use + (1 << 30), hard))
    try:
        with pytest.raises(hkrr.ModelFileError, match="do not fit into memory"):
            hkrr.load(tmp_path / "hole")
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def test_headers_with_many_parts_are_refused_before_parsing():
    refused(with_table(data_of("SIR"), lambda table: b"[" + b"{}," * 200_000 + b"1]"), "more lists and objects than")


def test_brackets_inside_strings_do_not_count_as_nesting():
    for text in ('{"a":"' + "[" * 50 + '"}', '{"a":"\\"' + "{" * 50 + '"}'):
        refused(
            with_table(data_of("SIR"), lambda table, text=text: text.encode()),
            "a safetensors file written by another program",
        )
    for text in ('{"a":"\\\\"' + ',"b":[' * 50, '"' + '\\"' * 1000 + "[" * 50):
        refused(with_table(data_of("SIR"), lambda table, text=text: text.encode()), "nested|JSON")
    refused(with_table(data_of("SIR"), lambda table: json.dumps(table).encode("utf-16")), "not valid UTF-8")


def test_no_code_is_run(tmp_path):
    class Payload:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "run"),))

    refused(pickle.dumps(Payload()))
    header, arrays = parts(data_of("SIR"))
    header["attributes"]["components_"] = {"object": {"class": "os.mkdir", "path": str(tmp_path / "run")}}
    refused(pack(header, arrays), "unknown class 'os.mkdir'")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (lambda: pickle.dumps(fitted("SIR")), "a pickle; joblib.load reads it, but loading runs any code"),
        (lambda: gzip.compress(b"model"), "a compressed file; decompress it first"),
        (lambda: hkrr.to_onnx(fitted("HyperKernelRidge")).SerializeToString(), "an ONNX graph; run it with"),
        (lambda: b"PK\x03\x04" + bytes(50), "a ZIP archive; read it with the program that wrote it"),
        (lambda: b"<!DOCTYPE html><html><body>404</body></html>", "a web page.*; download the file again"),
        (lambda: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "a Git LFS pointer.*git lfs pull"),
        (lambda: "a,b,é\n1,2,3\n".encode(), "a text file, not a model"),
        (lambda: b"PAR1" + bytes(50), "a table of numbers, not a model"),
        (
            lambda: bytes(range(128, 228)),
            "not an hkrr file; use another copy of the file, or save the model again",
        ),
        (lambda: data_of("SIR")[:-1], "truncated or damaged; use another copy of the file, or save the model again"),
    ],
)
def test_files_of_other_programs_are_recognised(data, message):
    refused(data(), message)


def test_paths_that_are_not_files(tmp_path):
    with pytest.raises(FileNotFoundError):
        hkrr.load(tmp_path / "nowhere")
    # Windows reports a folder as a file without read permission.
    with pytest.raises(IsADirectoryError if os.name == "posix" else PermissionError):
        hkrr.load(tmp_path)


@posix_only
def test_a_path_that_is_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(hkrr.ModelFileError, match="it is a device or a pipe; copy it"):
        hkrr.load(tmp_path / "pipe")


def _entry(**changes):
    return lambda table: table["map_"].update(changes)


@pytest.mark.parametrize(
    "change",
    [
        _entry(dtype="I64"),
        _entry(dtype="F32"),
        _entry(dtype="F32", shape=[2, 6]),
        _entry(dtype="BF16"),
        _entry(dtype=["F64"]),
        _entry(shape=[3, 2]),
        _entry(shape=[2**32, 2**32]),
        _entry(shape=[-2, -3]),
        _entry(shape=[2, 3.0]),
        _entry(shape=[True, 6]),
        _entry(shape=[0] * 50),
        _entry(shape=[0, 2**47, 2**47], data_offsets=[0, 0]),
        _entry(shape="23"),
        _entry(data_offsets=[0, 2**62]),
        _entry(data_offsets=[8, 56]),
        _entry(data_offsets=[48]),
        _entry(more=1),
        lambda table: table.update(map_=None),
        lambda table: table.pop("map_"),
        lambda table: table.update(extra={"dtype": "F64", "shape": [0], "data_offsets": [0, 0]}),
        lambda table: table["__metadata__"].update(more="1"),
        lambda table: table.update(__metadata__=[]),
        lambda table: table["__metadata__"].update(hkrr="[]"),
        lambda table: table["__metadata__"].update(hkrr="{}"),
        lambda table: table["__metadata__"].update(hkrr='{"format":1,"format":1}'),
        lambda table: table["__metadata__"].update(hkrr='{"format":NaN}'),
        lambda table: table["__metadata__"].update(hkrr='{"format":' + "9" * 5000 + "}"),
        lambda table: json.dumps(table).replace("{", '{"map_":1,', 1).encode(),
        lambda table: b"\xff" + json.dumps(table).encode(),
    ],
)
def test_inconsistent_tables_are_refused(change):
    refused(with_table(data_of("HyperKernelRidge"), change))
