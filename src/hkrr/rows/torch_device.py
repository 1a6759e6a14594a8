"""Rows on a PyTorch device. A GPU either stores the data, or receives the data block by block.

Blocks and their sums are float64 tensors on the device. If the data is stored on a GPU, `TorchRows.sum` does not wait
for the GPU. Only `TorchRows.fetch` and `TorchRows.map` copy results back to the host. Data that does not fit in GPU
memory stays in host memory. Blocks of such data are copied to the GPU through two pinned buffers: the next block is
copied while the current block is processed.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import torch

from hkrr._base.linear_algebra import Array
from hkrr.rows.base import BlockFunction, Coordinates, Rows, accumulate
from hkrr.rows.column_transform import ColumnTransform, transform_columns
from hkrr.rows.in_memory import InMemoryRows

# Maximum size in bytes of the largest array that a block function computes, for each type of device. It determines the
# number of rows in a block. On a GPU, arrays of this size keep the device busy and are small compared to its memory.
_BLOCK_BYTES = {"cuda": 1 << 30, "cpu": 5 << 20}
# The free GPU memory is not queried if the largest array of a block function for all rows is at most this size, because
# the query takes longer than the computation.
_SMALL_BYTES = 256 << 20
# Assumed number of arrays of maximum size that a block function keeps in memory at the same time.
_ARRAYS_AT_ONCE = 6
# Fraction of the free GPU memory that the arrays of a block function may use.
_SHARE_FOR_BLOCKS = 0.5
# Fraction of the free GPU memory that the data may use. Larger data stays in host memory.
_SHARE_FOR_DATA = 0.6
# Minimum number of rows in a block.
_MIN_BLOCK_ROWS = 256


class TorchRows(Rows):
    """Rows on a PyTorch device.

    Parameters
    ----------
    X : tensor or array (m, D)
        Inputs.
    y : tensor or array (m,) or (m, n_targets)
        Targets.
    sample_weight : tensor or array (m,) or None, default=None
        Weights of the rows. None gives every row the weight 1.
    device : torch.device or str
        The device that computes the sums.
    x_offset, x_scale : array (D,) or None, default=None
        Offsets and scales of the columns of X: a block function receives ``(X - x_offset) / x_scale``.
    y_offset : array (n_targets,) or None, default=None
        Offset of the targets: a block function receives ``y - y_offset``.
    block_size : int or "auto", default="auto"
        Number of rows in a block. "auto" chooses blocks that suit the device and its free memory.
    """

    n_threads = 1

    def __init__(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        device: Any,
        x_offset: Array | None = None,
        x_scale: Array | None = None,
        y_offset: Array | None = None,
        block_size: int | Literal["auto"] = "auto",
    ) -> None:
        self.device = _device(device)
        self._block_size = block_size
        self.pays_to_batch = self.device.type == "cuda"
        Y = y[:, None] if y.ndim == 1 else y
        self._resident = self._fits(X, Y)
        self._X, self._Y, self._weight = (self._keep(array) for array in (X, Y, sample_weight))
        self._raw_coordinates: Coordinates = (x_offset, x_scale, y_offset, None)
        self._coordinates = self._placed(x_offset, x_scale, y_offset)
        self._transform: tuple[Any, ...] | None = None  # the arrays of the transform, on the device
        self._reduced_sizes: dict[int, int] = {}  # for each width, the block size reduced after running out of memory
        self.n_rows, self.n_features = X.shape
        self.n_free_columns, self.n_targets = self.n_features, int(self._Y.shape[1])
        weight = None if self._weight is None else self._weight.to(torch.float64)
        self.n_counted = self.n_rows if weight is None else int(torch.count_nonzero(weight))
        self.total_weight = float(self.n_rows) if weight is None else float(torch.sum(weight))

    def __sizeof__(self) -> int:
        """Return the bytes of the tensors. Dask uses this size to decide which data to move between workers."""
        return sum(tensor.nbytes for tensor in (self._X, self._Y, self._weight) if tensor is not None)

    def with_coordinates(
        self,
        x_offset: Array | None,
        x_scale: Array | None,
        y_offset: Array | None,
        transform: ColumnTransform | None = None,
    ) -> TorchRows:
        other = copy.copy(self)
        other._raw_coordinates = (x_offset, x_scale, y_offset, transform)
        other._coordinates = self._placed(x_offset, x_scale, y_offset)
        other._transform = None
        if transform is not None:
            center, scale, ranked, knots, values = transform.arrays
            other._transform = (*self._placed(center, scale), ranked, *self._placed(knots, values))
        return other

    def with_normalized_weights(self) -> TorchRows:
        other = copy.copy(self)
        if self._weight is not None:
            other._weight = self._weight * (self.n_counted / self.total_weight)
            other.total_weight = float(torch.sum(other._weight))
        return other

    def reweighted(self, factors: Array) -> TorchRows:
        weight = torch.as_tensor(factors, dtype=torch.float64, device=self._Y.device)
        weight = weight if self._weight is None else self._weight.to(torch.float64) * weight
        x_offset, x_scale, y_offset, transform = self._raw_coordinates
        if y_offset is not None:
            # The first row is subtracted, so that the mean of a constant target has no rounding error.
            first = self._Y[0].to(torch.float64)
            y_offset = (first + (weight @ (self._Y.to(torch.float64) - first)) / torch.sum(weight)).cpu().numpy()
        other = self.with_coordinates(x_offset, x_scale, y_offset, transform)
        other._weight = weight * (self.total_weight / float(torch.sum(weight)))
        return other

    def to_device(self, rows: InMemoryRows) -> Rows:
        if not self.pays_to_batch:
            return rows
        moved = TorchRows(*rows.gather(), device=self.device)
        moved.n_free_columns = rows.n_free_columns
        return moved

    def _placed(self, *arrays: Array | None) -> tuple[Any, ...]:
        return tuple(None if array is None else self.place(array) for array in arrays)

    def place(self, array: Array) -> Array:
        return torch.as_tensor(array, dtype=torch.float64, device=self.device)

    def fetch(self, *arrays: Array) -> tuple[Array, ...]:
        arrays = tuple(torch.as_tensor(array, dtype=torch.float64, device=self.device) for array in arrays)
        flat = torch.cat([array.reshape(-1) for array in arrays]).cpu().numpy()
        ends = np.cumsum([array.numel() for array in arrays])
        parts = np.split(flat, ends[:-1])
        return tuple(part.reshape(tuple(array.shape)) for part, array in zip(parts, arrays, strict=True))

    def sum(self, fn: BlockFunction, width: int = 1, *small: Array) -> tuple[Any, ...]:
        small = tuple(self.place(array) for array in small)
        with torch.no_grad():
            sums: tuple[Any, ...] = self._retry_with_smaller_blocks(
                width, lambda size: accumulate(fn(*block, *small) for block in self._blocks(size))
            )
        return sums

    def map(self, fn: BlockFunction, width: int = 1, *small: Array) -> Array:
        small = tuple(self.place(array) for array in small)

        def work(size: int) -> Array:
            return torch.cat([fn(*block, *small)[0] for block in self._blocks(size)])

        with torch.no_grad():
            return self._retry_with_smaller_blocks(width, work).cpu().numpy()

    def draw(self, n: int, rng: np.random.RandomState) -> Array:
        if self._weight is None:
            return super().draw(n, rng)
        counted = np.flatnonzero(self._weight.cpu().numpy() > 0)
        return rng.choice(counted, min(n, len(counted)), replace=False)

    def subset(self, indices: Array) -> InMemoryRows:
        rows = InMemoryRows(*self._numpy(self._rows_at(indices))).with_coordinates(*self._raw_coordinates)
        rows.n_free_columns = self.n_free_columns
        return rows

    def _fits(self, X: Any, Y: Any) -> bool:
        if self.device.type != "cuda":
            return True
        if torch.is_tensor(X) and X.device == self.device:
            return True
        free = torch.cuda.mem_get_info(self.device)[0] + _reserved(self.device)
        return bool(X.nbytes + Y.nbytes <= _SHARE_FOR_DATA * free)

    def _keep(self, array: Any) -> Any:
        if array is None:
            return None
        # PyTorch does not accept negative strides, and warns about read-only memory.
        if not torch.is_tensor(array):
            array = torch.as_tensor(np.require(array, requirements=["C", "W"]))
        tensor = array.detach()
        if tensor.dtype == torch.bfloat16:
            tensor = tensor.to(torch.float32)  # `subset` returns NumPy arrays, and NumPy has no bfloat16
        return tensor.to(self.device) if self._resident else tensor.cpu()

    def _rows_at(self, indices: Array) -> tuple[Any, Any, Any]:
        at = torch.as_tensor(np.asarray(indices), device=self._X.device)
        return self._X[at], self._Y[at], None if self._weight is None else self._weight[at]

    def _in_coordinates(self, X: Any, Y: Any, w: Any) -> tuple[Any, Any, Any]:
        x_offset, x_scale, y_offset = self._coordinates
        X, Y = self.place(X), self.place(Y)
        if self._transform is not None:
            X = transform_columns(X, *self._transform)
        if x_offset is not None:
            X = X - x_offset
        if x_scale is not None:
            X = X / x_scale
        return X, Y if y_offset is None else Y - y_offset, None if w is None else self.place(w)

    @staticmethod
    def _numpy(arrays: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(None if array is None else array.cpu().numpy() for array in arrays)

    def _size(self, width: int) -> int:
        """Return the number of rows in a block for a block function whose largest array has ``width`` columns."""
        if self._block_size != "auto":
            return self._block_size
        row = 8 * max(width, self.n_features)
        limit = _BLOCK_BYTES.get(self.device.type, _BLOCK_BYTES["cuda"])
        if self.device.type == "cuda" and row * self.n_rows > _SMALL_BYTES:
            free = torch.cuda.mem_get_info(self.device)[0] + _reserved(self.device)
            limit = min(limit, int(_SHARE_FOR_BLOCKS * free) // _ARRAYS_AT_ONCE)
        return max(_MIN_BLOCK_ROWS, limit // row)

    def _retry_with_smaller_blocks(self, width: int, work: Any) -> Any:
        """Return ``work(block_size)``. If the device runs out of memory, halve the block size and repeat the pass."""
        size = min(self._size(width), self._reduced_sizes.get(width, self.n_rows))
        while True:
            try:
                return work(min(size, self.n_rows))
            except torch.cuda.OutOfMemoryError:
                if size <= _MIN_BLOCK_ROWS:
                    raise
            size = max(_MIN_BLOCK_ROWS, min(size, self.n_rows) // 2)
            self._reduced_sizes[width] = size  # later passes start with this size
            torch.cuda.empty_cache()

    def _blocks(self, size: int) -> Iterator[tuple[Any, Any, Any]]:
        slices = [slice(start, min(start + size, self.n_rows)) for start in range(0, self.n_rows, size)]
        if self._resident:
            for rows in slices:
                w = None if self._weight is None else self._weight[rows]
                yield self._in_coordinates(self._X[rows], self._Y[rows], w)
        else:
            yield from self._streamed(slices)

    def _streamed(self, slices: list[slice]) -> Iterator[tuple[Any, Any, Any]]:
        """Yield blocks copied through two sets of pinned buffers, on a separate CUDA stream.

        The next block is copied while the caller processes the current block.
        """
        sources = [self._X, self._Y] + ([] if self._weight is None else [self._weight])
        longest = slices[0].stop
        pinned = [
            [torch.empty((longest, *source.shape[1:]), dtype=source.dtype, pin_memory=True) for source in sources]
            for _ in range(2)
        ]
        cuda: Any = torch.cuda  # torch.cuda has no type annotations
        copied = [cuda.Event() for _ in range(2)]
        stream, main = cuda.Stream(self.device), cuda.current_stream(self.device)

        def start(k: int) -> list[Any]:
            turn, rows = k % 2, slices[k]
            copied[turn].synchronize()  # wait until the previous copy from this buffer is complete
            n = rows.stop - rows.start
            for buffer, source in zip(pinned[turn], sources, strict=True):
                buffer[:n].copy_(source[rows])
            with cuda.stream(stream):
                arrived = [buffer[:n].to(self.device, non_blocking=True) for buffer in pinned[turn]]
                copied[turn].record(stream)
            return arrived

        coming = start(0)
        for k in range(len(slices)):
            arrived = coming
            main.wait_event(copied[k % 2])
            for tensor in arrived:
                tensor.record_stream(main)
            if k + 1 < len(slices):
                coming = start(k + 1)
            yield self._in_coordinates(arrived[0], arrived[1], arrived[2] if len(arrived) > 2 else None)


def _device(name: Any) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"device={name!r} is not a PyTorch device ({error})") from None
    if device.type != "cuda":
        return device
    if not torch.cuda.is_available():
        raise ValueError(
            f"device={name!r}: PyTorch finds no GPU on this machine; use set_params(device=None) to compute on the CPU"
        )
    return device if device.index is not None else torch.device("cuda", torch.cuda.current_device())


def _reserved(device: Any) -> int:
    """Return the bytes of device memory that PyTorch has reserved but does not use."""
    return int(torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))
