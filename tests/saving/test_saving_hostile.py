"""Files of a stranger: cut off, flipped, lying, deep or long. Refused, and nothing of them is run."""

import gzip
import json
import os
import pickle
import resource
import tracemalloc
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import hkrr
from hkrr.records.format import pack
from mutated_files import deep, parts, with_table
from saved_models import apply, fitted, new_rows
from strangers import MODELS, data_of, load, refused

several = settings(max_examples=60, deadline=None)


@several
@given(name=st.sampled_from(MODELS), share=st.floats(0, 1, exclude_max=True))
def test_a_file_that_was_cut_off_is_refused(name, share):
    data = data_of(name)
    refused(data[: int(share * len(data))])


@several
@given(name=st.sampled_from(MODELS), share=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_bit_that_flipped_is_found(name, share, bit):
    data = bytearray(data_of(name))
    data[int(share * len(data))] ^= 1 << bit
    try:
        model = load(bytes(data))
    except hkrr.ModelFileError:
        return
    # The "e" of a number may become an "E": that is the same number.
    assert_array_equal(apply(model, new_rows()), apply(fitted(name), new_rows()), strict=True)


@several
@given(name=st.sampled_from(MODELS), data=st.data())
def test_lengths_that_lie_are_refused(name, data):
    honest = data_of(name)
    length = data.draw(st.one_of(st.integers(0, 2**64 - 1), st.integers(0, len(honest))))
    if length != int.from_bytes(honest[:8], "little"):
        refused(length.to_bytes(8, "little") + honest[8:])


@several
@given(junk=st.binary(max_size=200))
def test_other_files_are_refused(junk):
    refused(junk)


@several
@given(seed=st.integers(0, 2**32))
def test_deep_json_is_refused(seed):
    refused(deep(data_of("SIR"), Random(seed)))


def test_what_is_refused_takes_little_memory():
    """Of a megabyte a parser could make thirty, and of a length that lies anything."""
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


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads the memory as Linux shows it")
def test_more_bytes_than_memory_are_refused(tmp_path):
    """Of a file with a hole nothing lies: it is as long as its table says."""
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
        with pytest.raises(hkrr.ModelFileError, match="more than there is memory for"):
            hkrr.load(tmp_path / "hole")
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def test_headers_of_many_parts_are_refused_before_they_are_parsed():
    refused(with_table(data_of("SIR"), lambda table: b"[" + b"{}," * 200_000 + b"1]"), "more parts than any")


def test_text_that_hides_brackets_from_the_look_at_nesting():
    for text in ('{"a":"' + "[" * 50 + '"}', '{"a":"\\"' + "{" * 50 + '"}'):
        refused(
            with_table(data_of("SIR"), lambda table, text=text: text.encode()), "a safetensors file of something else"
        )
    for text in ('{"a":"\\\\"' + ',"b":[' * 50, '"' + '\\"' * 1000 + "[" * 50):
        refused(with_table(data_of("SIR"), lambda table, text=text: text.encode()), "nested|JSON")
    refused(with_table(data_of("SIR"), lambda table: json.dumps(table).encode("utf-16")), "no text")


def test_no_code_is_run(tmp_path):
    class Payload:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "run"),))

    refused(pickle.dumps(Payload()))
    header, arrays = parts(data_of("SIR"))
    header["attributes"]["components_"] = {"object": {"class": "os.mkdir", "path": str(tmp_path / "run")}}
    refused(pack(header, arrays), "'os.mkdir', which is unknown here")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (lambda: pickle.dumps(fitted("SIR")), "a pickle: joblib.load reads it, which runs whatever"),
        (lambda: gzip.compress(b"model"), "a compressed file: unpack it first"),
        (lambda: hkrr.to_onnx(fitted("HyperKernelRidge")).SerializeToString(), "an ONNX graph: onnxruntime runs it"),
        (lambda: b"PK\x03\x04" + bytes(50), "a ZIP archive .*: read it with what wrote it"),
        (lambda: b"<!DOCTYPE html><html><body>404</body></html>", "a web page.*: download the file again"),
        (lambda: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "a pointer of Git LFS.*git lfs pull"),
        (lambda: "a,b,é\n1,2,3\n".encode(), "a text, a table perhaps: the files of hkrr.save"),
        (lambda: b"PAR1" + bytes(50), "a table of numbers: fit a model to it"),
        (
            lambda: bytes(range(128, 228)),
            "hkrr did not write it; take another copy of the file, or save the model again",
        ),
        (lambda: data_of("SIR")[:-1], "cut off, or damaged; take another copy of the file, or save the model again"),
    ],
)
def test_what_a_file_seems_to_be_and_what_to_do_is_said(data, said):
    refused(data(), said)


def test_places_that_hold_no_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        hkrr.load(tmp_path / "nowhere")
    with pytest.raises(IsADirectoryError):
        hkrr.load(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(hkrr.ModelFileError, match="it is no file but a device or a pipe: copy it"):
        hkrr.load(tmp_path / "pipe")


def _entry(**changes):
    return lambda table: table["components_"].update(changes)


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
        lambda table: table.update(components_=None),
        lambda table: table.pop("components_"),
        lambda table: table.update(extra={"dtype": "F64", "shape": [0], "data_offsets": [0, 0]}),
        lambda table: table["__metadata__"].update(more="1"),
        lambda table: table.update(__metadata__=[]),
        lambda table: table["__metadata__"].update(hkrr="[]"),
        lambda table: table["__metadata__"].update(hkrr="{}"),
        lambda table: table["__metadata__"].update(hkrr='{"format":1,"format":1}'),
        lambda table: table["__metadata__"].update(hkrr='{"format":NaN}'),
        lambda table: table["__metadata__"].update(hkrr='{"format":' + "9" * 5000 + "}"),
        lambda table: json.dumps(table).replace("{", '{"components_":1,', 1).encode(),
        lambda table: b"\xff" + json.dumps(table).encode(),
    ],
)
def test_tables_that_do_not_add_up_are_refused(change):
    refused(with_table(data_of("HyperKernelRidge"), change))
