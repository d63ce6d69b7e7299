"""What stands in the files of a Parquet data set, looked at before anything is read of them."""

import os
from typing import Any, NamedTuple

from skroute.utils._optional import import_optional

# Columns of the parts themselves.
OWN = ("choice", "cost", "quality", "expected_cost")


class Source(NamedTuple):
    """Files of the same columns.

    Attributes
    ----------
    fragments : list of pyarrow.dataset.ParquetFileFragment
        In the order of their names.
    columns : list of str
        What the router reads.
    keep : list of str
        What is copied.
    schema : pyarrow.Schema
        Types that hold the values of every file, of `columns` and `keep`.
    """

    fragments: list
    columns: list
    keep: list
    schema: Any

    def batches(self, fragment, n_rows):
        """Record batches of one file, of at most so many rows and of the common types."""
        import pyarrow as pa

        names = self.schema.names
        read = fragment.to_batches(schema=self.schema, columns=names, batch_size=n_rows)
        while True:
            try:
                batch = next(read, None)
            except (OSError, pa.ArrowException) as error:
                raise _unreadable(fragment.path, error) from error
            if batch is None:
                return
            if batch.num_rows:
                yield batch


def open_source(path, named, columns, keep):
    """The files of a source, once all of them are known to have what will be read.

    Parameters
    ----------
    path : Path
        A file, or a folder of files.
    named : sequence of str or None
        Names that the router was fitted with.
    columns, keep : sequence of str or None
        As `route_batch` was told.

    Returns
    -------
    Source

    Raises
    ------
    ValueError
        With the file and the column, and nothing was written.
    """
    dataset = import_optional("pyarrow.dataset", "route_batch")
    try:
        found = dataset.dataset(str(path), format="parquet")
    except (OSError, ValueError) as error:
        raise ValueError(f"The source {str(path)!r} cannot be read: {error}") from error
    fragments = sorted(found.get_fragments(), key=lambda one: one.path)
    if not fragments:
        raise ValueError(f"The source {str(path)!r} has no files: name a folder of Parquet files.")
    schemas = [_schema(fragment) for fragment in fragments]
    names = [os.path.relpath(one.path, path) if path.is_dir() else path.name for one in fragments]
    columns, keep = _names(names, schemas, named if columns is None else columns, keep)
    read = list(dict.fromkeys([*columns, *keep]))
    fields = [_common(name, names, schemas, name in keep) for name in read]
    import pyarrow as pa

    return Source(fragments, columns, keep, pa.schema(fields))


def _unreadable(path, error):
    return ValueError(
        f"The file {str(path)!r} of the source cannot be read, it is damaged or no Parquet: "
        f"{error} Write it again, or take it out of the source."
    )


def _schema(fragment):
    try:
        # Rows too: both stand at the end of a file, which one that was cut off lacks.
        fragment.count_rows()
        return fragment.physical_schema
    except (OSError, ValueError) as error:
        raise _unreadable(fragment.path, error) from error


def _names(files, schemas, columns, keep):
    """Names of the columns that are read and kept, which every file must have once."""
    keep = list(keep or ())
    if wrong := set(OWN) & set(keep):
        raise ValueError(f"keep must not have {sorted(wrong)[0]!r}: the parts have their own.")
    told = columns is not None
    if not told:
        columns = [name for name in schemas[0].names if name not in keep]
    columns = list(map(str, columns))
    for name in [*columns, *keep]:
        lacking = [i for i, schema in enumerate(schemas) if name not in schema.names]
        if len(lacking) == len(files):
            raise ValueError(
                f"There is no column {name!r} in the source, which has {schemas[0].names!r}."
            )
        if lacking:
            raise ValueError(
                f"There is no column {name!r} in {files[lacking[0]]!r} ({len(lacking)} of "
                f"{len(files)} files lack it), which has {schemas[lacking[0]].names!r}. Write "
                "the file again with it, or take it out of the source."
            )
        twice = [i for i, schema in enumerate(schemas) if schema.names.count(name) > 1]
        if twice:
            raise ValueError(
                f"There is more than one column {name!r} in {files[twice[0]]!r}. Write the file "
                "again with other names."
            )
    for file, schema in zip(files, schemas):
        if not told and (more := [one for one in schema.names if one not in [*columns, *keep]]):
            raise ValueError(
                f"There is a column {more[0]!r} in {file!r} that {files[0]!r} lacks. The router "
                "was fitted without names: say in columns which ones it reads, in their order."
            )
    return columns, keep


def _common(name, files, schemas, kept):
    """A field that holds what every file has in this column."""
    import pyarrow as pa

    found = schemas[0].field(name)
    for file, schema in zip(files[1:], schemas[1:]):
        both = [found, schema.field(name)]
        types = [one.type for one in both]
        if sum(map(pa.types.is_dictionary, types)) == 1:
            # Categories beside plain values are read as these.
            both = [one.with_type(getattr(one.type, "value_type", one.type)) for one in both]
        try:
            pair = [pa.schema([one]) for one in both]
            found = pa.unify_schemas(pair, promote_options="permissive").field(0)
        except pa.ArrowException:
            found = None
        # An id that becomes a float is another id.
        own = (pa.types.is_floating(one) or pa.types.is_null(one) for one in types)
        if found is None or (kept and pa.types.is_floating(found.type) and not all(own)):
            raise ValueError(
                f"The column {name!r} is {types[1]} in {file!r} and {types[0]} in the files "
                "before it. Write the file again with the same type, or take it out of the source."
            )
    return found
