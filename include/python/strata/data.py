# SPDX-License-Identifier: Apache-2.0
"""Datasets: arrays, files, generators and loaders of other frameworks, and stages over them. strata/dataset.h and
strata/pipeline.h describe them in detail."""
import ctypes
import itertools

import numpy

from . import _native
from ._native import Handle, InvalidError, callback, lib, struct


class Dataset(Handle):
    """Examples, which are features and, where they are known, labels. A stage returns a new dataset and does not change the
    old one."""
    _destroy = "dataset_destroy"
    _finalizer_of = _native.QuickFinalizer

    # ---- sources ----
    @classmethod
    def from_arrays(cls, x, y=None, sample_weight=None, scale: "float | None" = None) -> "Dataset":
        """Examples x[i] with labels y[i]. x and y are arrays of numpy or of a library that supports DLPack. u8, f32, i32
        and i64 are not copied. scale: features are multiplied by it, for example by 1/255 for pixels that are bytes."""
        x = _narrow(_native.host_array(x, "x"))
        y = None if y is None else _narrow(_native.host_array(y, "y"))
        dataset = cls(lib.dataset_from_arrays(x, y, _native.number(scale)), x, y)
        if sample_weight is not None:
            lib.dataset_set_weights(dataset, numpy.asarray(sample_weight, numpy.float32))
        return dataset

    @classmethod
    def from_columns(cls, inputs: dict, targets: "dict | None" = None) -> "Dataset":
        """Arrays by name, for models with several inputs or outputs, which use the arrays of their names."""
        kept, lists = [], []
        for columns in (inputs, targets or {}):
            given = (_native.ctype("strata_data_column") * max(1, len(columns)))()
            for one, (name, array) in zip(given, columns.items()):
                array = _narrow(_native.host_array(array, repr(name)))
                view = _native.view(array)
                one.name, one.array = name.encode(), ctypes.pointer(view)
                kept += [array, view]
            lists.append(list(given[:len(columns)]))
        return cls(lib.dataset_from_columns(*lists), kept)

    @classmethod
    def csv(cls, path, label=None, features=None, separator=None, header=None, decimal=None, thousands=None, na=None,
            quote=None) -> "Dataset":
        """The numbers of a table. For dates, words and missing values use `strata train FILE` or strata/preprocessing.h.

        What is None is found in the file. separator, quote, decimal and thousands are characters; quote="" means that no
        cells are quoted, and thousands="" that no numbers have groups. header: whether the first line has the names of the
        columns. na: words of missing values, which are an error here, as an empty cell is."""
        options = struct("csv_options", label=label, features=features, n_features=len(features or ()))
        words = [w.encode() for w in na or ()]
        for name, value in (("separator", separator), ("decimal", decimal), ("thousands", thousands), ("quote", quote)):
            if value is not None:
                if len(value.encode()) > 1 or (not value and name in ("separator", "decimal")):
                    raise InvalidError(f"csv: {name} is {value!r}; it must be one character")
                setattr(options.dialect, name, value.encode() or b"\1")
        if header is not None:
            options.dialect.header = 1 if header else 2
        if na is not None:
            options.dialect.na, options.dialect.n_na = (ctypes.c_char_p * max(1, len(words)))(*(words or [b""])), len(words)
        return cls(lib.dataset_csv(path, options))

    @classmethod
    def npz(cls, path, features: str = "x", labels: "str | None" = "y") -> "Dataset":
        return cls(lib.dataset_npz(path, features, labels))

    @classmethod
    def image_folder(cls, path, channels: int = 3) -> "Dataset":
        """Pictures in <path>/<class>/, also in folders in it and behind links, all of one size: PNG, JPEG, WebP, GIF, TIFF,
        BMP, PBM, PGM, PPM. `source` counts what was left out."""
        return cls(lib.dataset_image_folder(path, _native.given("channels", channels)))

    @classmethod
    def mnist(cls, path=None, split: str = "train", seed: int = 0) -> "Dataset":
        """path None: digits that the library generates."""
        return cls(lib.dataset_mnist(path, split, seed))

    @classmethod
    def cifar10(cls, path, split: str = "train") -> "Dataset": return cls(lib.dataset_cifar10(path, split))

    @classmethod
    def from_generator(cls, make, size: "int | None" = None) -> "Dataset":
        """Examples that Python generates. make() returns an iterable of examples, x or (x, y), and is called for each
        epoch. If make has a parameter, it gets the number of the epoch. The first example is generated at once, to find out
        the shapes."""
        return _generated(cls, make, size, False)

    @classmethod
    def from_batches(cls, loader, _features=None) -> "Dataset":
        """Batches of a loader such as torch.utils.data.DataLoader, an iterable of (x, y) whose first axes count examples.
        It is iterated in each epoch, and the loader determines the size of the batches."""
        # A class of another module may begin again in its __iter__ and return itself.
        if type(loader).__module__ in ("builtins", "itertools") and iter(loader) is loader:
            raise InvalidError("from_batches: an iterator returns its batches only once, but they are read in each epoch; "
                               "give a list or a loader of them")
        return _generated(cls, lambda: loader, len(loader) if hasattr(loader, "__len__") else None, True, _features)

    def keep_bytes(self) -> "Dataset":
        """Sends pixels to the device as bytes, which needs a quarter of the memory. Call it before stages. The command does
        this for its samples."""
        lib.dataset_keep_bytes(self)
        return self

    # ---- stages ----
    def _stage(self, stage, *arguments, keep=()):
        handle = ctypes.c_void_p(lib.dataset_retain(self))
        try:
            getattr(lib, stage)(ctypes.byref(handle), *arguments)
        except BaseException:
            lib.dataset_destroy(handle)
            raise
        return Dataset(handle.value, self, *keep)

    def shuffle(self, buffer: "int | None" = None, same_each_epoch: bool = False) -> "Dataset":
        """buffer None: each element is chosen from all elements."""
        buffer = _native.given("buffer", buffer)
        return self._stage("dataset_shuffle", struct("shuffle_options", buffer=buffer, same_each_epoch=same_each_epoch))

    def batch(self, n: int, drop_remainder: bool = False) -> "Dataset":
        return self._stage("dataset_batch", n, drop_remainder)

    def repeat(self, count: "int | None" = None) -> "Dataset":
        """count None: without end."""
        return self._stage("dataset_repeat", _native.given("count", count))

    def take(self, n: int) -> "Dataset": return self._stage("dataset_take", n)
    def skip(self, n: int) -> "Dataset": return self._stage("dataset_skip", n)
    def shard(self, n: int, index: int) -> "Dataset": return self._stage("dataset_shard", n, index)
    def cache(self) -> "Dataset": return self._stage("dataset_cache")
    def prefetch(self, n: int = 2) -> "Dataset": return self._stage("dataset_prefetch", n)

    def map(self, function, threads: int = 0) -> "Dataset":
        """function(x, y) returns the new example, x or (x, y). Shapes and types may change."""
        first = next(iter(self), None)
        if first is None:
            raise InvalidError("map: the dataset has no examples")
        spec = _spec(_parts(function(*first)), False)

        def run(element, user):
            element = element[0]
            before = [_native.from_array(element.parts[i], owner=element).copy() for i in range(element.n_parts)]
            after = _parts(function(*before))
            for i in range(element.n_parts):
                lib.array_finish(element.parts[i])
            for i, part in enumerate(after):
                _native.store(element.parts[i], part)
            element.n_parts = len(after)
        run = callback("strata_map_function", run)
        return self._stage("dataset_map", run, None, struct("map_options", threads=threads, spec=spec), keep=(run,))

    def split(self, fraction: float, seed: int = 0, in_order: bool = False) -> "tuple[Dataset, Dataset]":
        """Splits the dataset. The second part gets this fraction of the examples of each class."""
        first, last = lib.dataset_split(self, fraction, struct("split_options", seed=seed, in_order=in_order))
        return Dataset(first, self), Dataset(last, self)

    # ---- contents ----
    def __len__(self) -> int:
        return max(0, lib.dataset_size(self))

    def __iter__(self):
        """Iterates over the elements in their order, as tuples of arrays."""
        walk = _Iterator(lib.iterator_create(self, 0, 0, 0), self)
        while True:
            element, more = lib.iterator_next(walk)
            if not more:
                return
            parts = tuple(_native.from_array(element.parts[i], owner=element).copy() for i in range(element.n_parts))
            lib.element_finish(element)
            yield parts

    element_shape = property(lambda self: _native.dims(lib.dataset_element_shape(self)))
    element_dtype = property(lambda self: _native.dtype_of(lib.dataset_feature_dtype(self)))
    n_classes = property(lambda self: lib.dataset_n_classes(self))
    class_names = property(lambda self: [lib.dataset_class_name(self, i) for i in range(self.n_classes)])
    source = property(lambda self: lib.dataset_source(self))


class _Iterator(Handle):
    _destroy = "iterator_destroy"


def _narrow(array):
    """Converts an array to a type that datasets support: other floats to f32, booleans to bytes, u16 to i64."""
    if array.dtype.kind == "f":
        return array.astype(numpy.float32, copy=False)
    if array.dtype == numpy.uint16:  # without ml_dtypes, _native takes it for the bits of bf16
        return array.astype(numpy.int64)
    return array.view(numpy.uint8) if array.dtype == numpy.bool_ else array


def _parts(example, features=None):
    """The arrays of an example or a batch. features: converts the first of them."""
    parts = list(example) if isinstance(example, (tuple, list)) else [example]
    if features is not None:
        parts[0] = features(parts[0])
    parts = [_narrow(_native.host_array(p)) for p in parts]
    for part in parts:
        if part.dtype == numpy.int64 and part.size and not -2**31 <= part.min() <= part.max() < 2**31:
            raise InvalidError(f"the integers {part.min()} to {part.max()} do not fit in 32 bits")
    return [p.astype(numpy.int32) if p.dtype == numpy.int64 else p for p in parts]


def _spec(parts, is_batch):
    spec = struct("element_spec", n_parts=len(parts), is_batch=is_batch)
    for i, part in enumerate(parts):
        spec.parts[i].dtype = _native.dtype(part.dtype)
        spec.parts[i].shape = _native.shape((-1, *part.shape[1:]) if is_batch else part.shape)
    return spec


def _generated(cls, make, size, is_batch, features=None):
    takes_epoch = getattr(getattr(make, "__code__", None), "co_argcount", 0) - hasattr(make, "__self__") > 0
    start = make if takes_epoch else (lambda epoch: make())
    first = next(iter(start(0)), None)
    if first is None:
        raise InvalidError("the generator gives no example")
    walks, numbers = {}, itertools.count(1)

    def open_walk(user, seed, epoch, out_state):
        number = next(numbers)
        walks[number] = iter(start(epoch))
        out_state[0] = number

    def next_element(state, index, element, out_end):
        example = next(walks[state], None)
        out_end[0] = example is None
        for i, part in enumerate([] if example is None else _parts(example, features)):
            _native.store(element[0].parts[i], part)
            element[0].n_parts = i + 1

    generator = struct("generator", spec=_spec(_parts(first, features), is_batch), size=-1 if size is None else size)
    kinds = dict(generator._fields_)
    for name, function in (("open", open_walk), ("next", next_element)):
        setattr(generator, name, kinds[name](lambda *given, f=function: _native.guarded(f, given[-1], *given[:-1])))
    generator.close = kinds["close"](lambda state: _native.guarded(walks.pop, None, state, None) and None)
    return cls(lib.dataset_from_generator(generator), generator)


def is_array(x) -> bool:
    """Whether x is an array, or a list that becomes one, and not a dataset or a loader."""
    return hasattr(x, "shape") or isinstance(x, (list, tuple)) or not (isinstance(x, Dataset) or hasattr(x, "__iter__"))


def dataset(x, y=None, sample_weight=None, features=None) -> Dataset:
    """Returns x if it is a dataset, otherwise a dataset of the arrays x and y, or of a loader of batches, whose first array
    `features` converts."""
    if isinstance(x, dict):
        data = Dataset.from_columns(x, y)
        if sample_weight is not None:
            lib.dataset_set_weights(data, numpy.asarray(sample_weight, numpy.float32))
        return data
    if isinstance(x, Dataset):
        if y is not None or sample_weight is not None:
            raise InvalidError("a dataset has its labels and weights inside: leave y and sample_weight out")
        return x
    if y is None and not is_array(x):
        return Dataset.from_batches(x, features)
    return Dataset.from_arrays(x, y, sample_weight)
