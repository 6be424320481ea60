"""Counts the operations of a codec in Python per element while it runs, by arrays that count what NumPy does with them.

They are no arrays of NumPy, so that nothing gets past them in silence. Whatever makes a plain array of one makes the count a guess:
np.asarray, a table that is indexed with one, an `out` of plain memory, a loop over numbers.
"""

from __future__ import annotations

import math
from typing import Any, Callable

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

__all__ = ["Count", "Counted"]

#: Functions and methods that move elements, or say something of an array, and calculate nothing.
_MOVES = set(
    "append array_split asarray_chkfinite atleast_1d atleast_2d atleast_3d block broadcast_arrays broadcast_to can_cast column_stack"
    " concatenate concat copy copyto delete diag diagonal dsplit dstack empty_like expand_dims fill flatten flip fliplr flipud full_like hsplit"
    " hstack imag insert iscomplexobj isrealobj ix_ matrix_transpose may_share_memory min_scalar_type moveaxis ndim newbyteorder ones_like pad"
    " permute_dims ravel real repeat reshape resize result_type rollaxis roll rot90 row_stack setflags shape shares_memory size"
    " sliding_window_view split squeeze stack swapaxes tile transpose tril triu unstack view vsplit vstack zeros_like byteswap item".split()
)
#: Operations per element of the largest array that comes or goes, of all others one.
_OPERATIONS = {
    "allclose": 6, "average": 3, "clip": 2, "cross": 6, "gradient": 2, "isclose": 6, "nan_to_num": 6, "nanmax": 2, "nanmean": 3,
    "nanmin": 2, "nanstd": 6, "nansum": 2, "nanvar": 6, "packbits": 2, "ptp": 2, "round": 3, "around": 3, "std": 4, "unpackbits": 2, "var": 4,
}  # fmt: skip
_SORTS = set("argpartition argsort lexsort median nanmedian nanpercentile nanquantile partition percentile quantile sort sort_complex"
             " unique unique_all unique_counts unique_inverse unique_values union1d intersect1d setdiff1d isin in1d".split())  # fmt: skip
_SEARCHES = {"digitize", "histogram", "histogram_bin_edges", "interp", "searchsorted"}
_PRODUCTS = {"dot", "inner", "matmul", "matvec", "outer", "kron", "tensordot", "vdot", "vecdot", "vecmat"}
#: One dimension slides over another.
_SLIDES = {"convolve", "correlate"}


class Count:
    """Operations so far, and whether some may be missing."""

    def __init__(self) -> None:
        self.operations = 0.0
        self.is_guess = False

    def add(self, name: str, inputs: list[np.ndarray], made: list[np.ndarray], named: dict[str, Any]) -> None:
        """Adds the operations of a call of NumPy."""
        largest = max((each.size for each in (*inputs, *made)), default=0)
        sizes = sorted((each.size for each in inputs), reverse=True)
        if name in _MOVES:
            return
        if name in _SORTS:
            axis = named.get("axis", -1)
            along = inputs[0].shape[axis] if inputs and inputs[0].ndim and isinstance(axis, int) else largest
            self.operations += largest * max(math.log2(max(along, 1)), 1)
        elif name in _SEARCHES:
            self.operations += largest * max(math.log2(max(sizes[-1] if len(sizes) > 1 else 10, 2)), 1) + (3 * largest if name == "interp" else 0)
        elif name in _PRODUCTS:
            # A product and a sum for each number of the result and each that it is summed over; without these, a product.
            out = max((each.size for each in made), default=1)
            terms = max(math.prod(sizes[:2]) / max(out, 1), 1) if len(sizes) > 1 else 1
            if name in ("matmul", "dot", "vecdot", "matvec", "vecmat", "inner") and inputs and inputs[0].ndim:
                terms = inputs[0].shape[-1 if name != "vecmat" else -1]
            elif name == "tensordot":
                terms = math.sqrt(math.prod(sizes[:2]) / max(out, 1))
            self.operations += out * (2 * terms if name not in ("outer", "kron") else 1)
        elif name in _SLIDES:
            self.operations += 2 * math.prod(sizes[:2])
        elif name == "select":
            self.operations += largest * max(len(inputs) // 2, 1)
        else:
            self.operations += largest * _OPERATIONS.get(name, 1)


def _plain(value: Any) -> Any:
    """The same without arrays that count, also in tuples, lists and dicts."""
    if isinstance(value, Counted):
        return value.plain
    if type(value) in (tuple, list):
        return type(value)(map(_plain, value))
    if type(value) is dict:
        return {key: _plain(each) for key, each in value.items()}
    return value


def _arrays(value: Any) -> list[np.ndarray]:
    if isinstance(value, Counted):
        return [value.plain]
    if isinstance(value, (np.ndarray, np.generic)):
        return [np.asarray(value)]
    if isinstance(value, (tuple, list)):
        return [array for each in value for array in _arrays(each)]
    return []


class Counted(NDArrayOperatorsMixin):
    """An array that counts what NumPy does with it."""

    __array_priority__ = 1000

    def __init__(self, plain: np.ndarray, count: Count):
        self.plain, self.count = plain, count

    def _wrapped(self, made: Any, given: tuple[Any, ...] = ()) -> Any:
        """Arrays of a result that count, too; of `given` the very objects."""
        if isinstance(made, np.ndarray):
            for each in given:
                if isinstance(each, Counted) and each.plain is made:
                    return each
            return Counted(made, self.count)
        if isinstance(made, tuple) and type(made) is not tuple and hasattr(made, "_fields"):  # as of unique_counts
            return type(made)(*(self._wrapped(each, given) for each in made))
        return type(made)(self._wrapped(each, given) for each in made) if type(made) in (tuple, list) else made

    # ---- functions of NumPy

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **named: Any) -> Any:
        outs = named.get("out", ())
        # Operations on an array that does not count are not seen.
        if any(isinstance(each, np.ndarray) for each in outs):
            self.count.is_guess = True
        made = getattr(ufunc, method)(*map(_plain, inputs), **{key: _plain(each) for key, each in named.items()})
        name = ufunc.__name__ if ufunc.signature else ""
        self.count.add(name, _arrays(inputs), _arrays(made), named)
        return self._wrapped(made, outs)

    def __array_function__(self, function: Callable[..., Any], _: Any, inputs: tuple[Any, ...], named: dict[str, Any]) -> Any:
        name = function.__name__
        if _has_function((*inputs, *named.values())):
            self.count.is_guess = True  # its work on plain arrays is not counted
        if isinstance(named.get("out"), np.ndarray) or (name == "copyto" and isinstance(inputs[0], np.ndarray)):
            self.count.is_guess = True
        made = function(*map(_plain, inputs), **{key: _plain(each) for key, each in named.items()})
        arrays = _arrays(inputs) + _arrays(list(named.values()))
        if (function.__module__ or "").startswith(("numpy.fft", "numpy.linalg")) or name in ("einsum", "einsum_path"):
            self._add_algebra(function.__module__ or "", name, inputs, arrays, _arrays(made))
        elif name == "copyto" and "where" in named:
            self.count.add("where", arrays, [], {})
        elif name in ("select", "choose", "piecewise"):
            self.count.add("select", arrays, _arrays(made), {})
        else:
            self.count.add(name, arrays, _arrays(made), named)
        return self._wrapped(made, (named.get("out"),))

    def _add_algebra(self, module: str, name: str, inputs: tuple[Any, ...], arrays: list[np.ndarray], made: list[np.ndarray]) -> None:
        largest = max((each.size for each in (*arrays, *made)), default=0)
        if name == "einsum" and inputs and isinstance(inputs[0], str) and "..." not in inputs[0]:
            of_label: dict[str, int] = {}
            for labels, array in zip(inputs[0].split("->")[0].replace(" ", "").split(","), arrays):
                of_label |= dict(zip(labels, array.shape))
            self.count.operations += max(len(arrays), 2) * math.prod(of_label.values())
        elif module.startswith("numpy.fft"):
            self.count.operations += 5 * largest * max(math.log2(max(largest, 2)), 1)
        elif name in ("norm", "vector_norm", "matmul", "einsum_path", "cross", "diagonal", "trace", "outer", "vecdot"):
            self.count.add("dot" if name in ("matmul", "vecdot") else name, arrays, made, {})
        else:  # a matrix is solved, or taken apart
            self.count.operations += largest * max((each.shape[-1] for each in arrays if each.ndim), default=1)

    # ---- what an array has

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("plain", "count"):
            raise AttributeError(name)
        found = getattr(self.plain, name)
        if name in ("tobytes", "tolist", "tofile", "dump", "dumps", "data", "ctypes", "base", "flat", "item"):
            self.count.is_guess = True
        if isinstance(found, np.ndarray):
            return Counted(found, self.count)
        if not callable(found) or isinstance(found, np.dtype):
            return found

        def method(*inputs: Any, **named: Any) -> Any:
            if isinstance(named.get("out"), np.ndarray):
                self.count.is_guess = True
            made = found(*map(_plain, inputs), **{key: _plain(each) for key, each in named.items()})
            self.count.add(name, [self.plain, *_arrays(inputs)], _arrays(made), named)
            return self._wrapped(made, (named.get("out"),))

        return method

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("plain", "count"):
            object.__setattr__(self, name, value)
        else:
            setattr(self.plain, name, value)

    def __getitem__(self, index: Any) -> Any:
        found = self.plain[_plain(index)]
        if _is_gathered(index):
            self.count.add("take", [], _arrays(found), {})
        return self._wrapped(found)

    def __setitem__(self, index: Any, value: Any) -> None:
        place = _plain(index)
        self.plain[place] = _plain(value)
        if _is_gathered(index):
            self.count.add("put", [], [self.plain[place]], {})

    def __len__(self) -> int:
        return len(self.plain)

    def __iter__(self) -> Any:
        if self.plain.ndim < 2:  # numbers
            self.count.is_guess = True
        return iter([self._wrapped(each) for each in self.plain])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        self.count.is_guess = True
        return np.array(self.plain, dtype) if copy else np.asarray(self.plain, dtype)

    def __bool__(self) -> bool:
        return bool(self.plain)

    def __float__(self) -> float:
        return float(self.plain)

    def __int__(self) -> int:
        return int(self.plain)

    def __index__(self) -> int:
        return self.plain.__index__()

    def __contains__(self, value: Any) -> bool:
        return _plain(value) in self.plain

    def __copy__(self) -> Counted:
        return Counted(self.plain.copy(), self.count)

    def __deepcopy__(self, _: Any) -> Counted:
        return Counted(self.plain.copy(), self.count)

    def __repr__(self) -> str:
        return repr(self.plain)


def _has_function(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(map(_has_function, value))
    return callable(value) and not isinstance(value, (type, np.dtype, Counted))


def _is_gathered(index: Any) -> bool:
    """Whether elements are picked one by one, by numbers or by a mask."""
    parts = index if isinstance(index, tuple) else (index,)
    return any(isinstance(each, (Counted, np.ndarray, list)) for each in parts)
