"""New tables: version 0, with a protocol that lists everything the table makes use of."""

from __future__ import annotations

import uuid
from collections import Counter
from typing import TYPE_CHECKING, Any

from lakehand import errors
from lakehand.formats.delta.commits.commit_info import ENGINE_INFO, encode_parameters
from lakehand.formats.delta.commits.draft import encode_actions
from lakehand.formats.delta.commits.publish import publish
from lakehand.formats.delta.commits.table_properties import (
    assign_column_ids,
    check_properties,
    features_asked_for,
)
from lakehand.formats.delta.log.listing import list_log
from lakehand.formats.delta.protocol.actions import Metadata, Protocol
from lakehand.formats.delta.protocol.arrow_types import from_arrow, to_arrow
from lakehand.formats.delta.protocol.features import (
    FEATURES,
    ROW_ID_PROPERTY,
    ROW_VERSION_PROPERTY,
    Verdict,
    has_type,
    require_write,
)
from lakehand.formats.delta.protocol.schema import (
    ArrayType,
    MappingMode,
    MapType,
    StructType,
    constraints_of,
    mapping_mode,
)
from lakehand.model.table_head import RowRules
from lakehand.observe.clock import Clock, SystemClock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from lakehand.storage import Store

_FORBIDDEN_IN_NAMES = set(" ,;{}()\n\t=")
#: Features that every new table may use: the oldest protocol that is still written has them.
_ALWAYS = ("appendOnly", "invariants")
_FEATURES_BY_TYPE = {"timestamp_ntz": "timestampNtz", "variant": "variantType"}


def create_table(
    store: Store,
    schema: pa.Schema,
    *,
    partition_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    clock: Clock | None = None,
) -> None:
    """Create an empty table; TableExistsError if there is one.

    Raises RefusedError for properties and features that lakehand does not write, and
    ConditionalPutError on a store to which nothing can be committed safely.
    """
    clock = clock or SystemClock()
    asked = dict(properties or {})
    columns = from_arrow(schema)
    metadata = _metadata(columns, partition_by, asked, clock)
    _require_constraints(metadata, columns, table=store.url)
    protocol = _protocol(metadata, features_asked_for(asked))
    if list_log(store).last_version is not None:
        raise _exists(store)
    # No row could ever be written to a table that is refused here.
    require_write("append", protocol, metadata, table=store.url)
    token = str(uuid.uuid4())
    data = _version_0(metadata, protocol, token=token, clock=clock)
    published = publish(store, 0, data, token=token, clock=clock)
    if published.ours:
        return
    if published.commit is not None or published.failure is None:
        raise _exists(store)
    if published.failure.retryable or isinstance(published.failure, errors.ObjectExistsError):
        raise _unknown(store) from published.failure
    raise published.failure


def _metadata(
    schema: StructType, partition_by: Sequence[str], asked: Mapping[str, str], clock: Clock
) -> Metadata:
    configuration, table_id = check_properties(asked), str(uuid.uuid4())
    mode = mapping_mode(configuration)
    partition_columns = _partition_columns(schema, partition_by)
    check_names(schema, mode)
    if mode is not MappingMode.NONE:
        schema, highest = assign_column_ids(schema, table_id=table_id)
        configuration["delta.columnMapping.maxColumnId"] = str(highest)
    if "rowTracking" in features_asked_for(asked):
        configuration |= row_tracking_columns()
    return Metadata(
        id=table_id,
        schema_string=schema.to_json(),
        partition_columns=partition_columns,
        configuration=configuration,
        created_time=_milliseconds(clock),
    )


def _require_constraints(metadata: Metadata, columns: StructType, *, table: str) -> None:
    """Refuse CHECK constraints by which lakehand could write no row."""
    constraints = constraints_of(metadata)
    if "" in constraints:
        message = "a constraint needs a name: delta.constraints.<name>"
        raise errors.ValidationError(message, field="properties")
    if constraints:
        from lakehand.expressions.constraints import RowChecker  # SQL takes long to import

        try:
            RowChecker(RowRules(constraints=constraints), to_arrow(columns), table=table)
        except errors.RefusedError as error:
            raise errors.RefusedError(
                f"{table} cannot be created: {error.message.partition(f'{table}: ')[2]}",
                operation="create",
                table=table,
                hint="nothing was written; correct the constraint, or create the table with Spark",
            ) from error


def _partition_columns(schema: StructType, partition_by: Sequence[str]) -> tuple[str, ...]:
    names = []
    for name in partition_by:
        column = schema.find(name)
        if column is None:
            raise errors.UnknownColumnError(name, schema.names)
        if isinstance(column.type, StructType | ArrayType | MapType):
            message = f"a table cannot be partitioned by {name!r}, which is a nested column"
            raise errors.ValidationError(message, field="partition_by", value=name)
        names.append(column.name)
    if len(set(names)) < len(names) or (names and len(names) == len(schema.fields)):
        message = "partition columns must differ, and at least one other column must be left"
        raise errors.ValidationError(message, field="partition_by", value=list(partition_by))
    return tuple(names)


def check_names(schema: StructType, mode: MappingMode) -> None:
    """Refuse columns that no engine could tell apart, or that files could not be named after."""
    if not schema.fields:
        raise errors.ValidationError("a table needs at least one column", field="schema")
    for struct in _structs(schema):
        name, count = Counter(name.casefold() for name in struct.names).most_common(1)[0]
        if count > 1:
            message = f"column {name!r} occurs {count} times; Delta compares names without case"
            raise errors.ValidationError(message, field="schema", value=name)
        odd = next((n for n in struct.names if _FORBIDDEN_IN_NAMES & set(n) or not n), None)
        if odd is not None and mode is MappingMode.NONE:
            raise errors.ValidationError(
                f"column {odd!r} has a character that Delta does not allow in names",
                field="schema",
                value=odd,
                hint="set the property delta.columnMapping.mode to name",
            )


def _structs(type_: Any) -> list[StructType]:
    match type_:
        case StructType(fields):
            return [type_, *(inner for column in fields for inner in _structs(column.type))]
        case ArrayType(element):
            return _structs(element)
        case MapType(key, value):
            return [*_structs(key), *_structs(value)]
    return []


def row_tracking_columns() -> dict[str, str]:
    """Return properties that name the columns in which files hold row ids."""
    return {
        ROW_ID_PROPERTY: f"_row-id-col-{uuid.uuid4()}",
        ROW_VERSION_PROPERTY: f"_row-commit-version-col-{uuid.uuid4()}",
    }


def _protocol(metadata: Metadata, asked: set[str]) -> Protocol:
    """Return the least protocol that lists every feature the metadata makes use of."""
    needed = asked | features_of_columns(metadata)
    if mapping_mode(metadata.configuration) is not MappingMode.NONE:
        needed.add("columnMapping")
    for name in sorted(needed):
        require_writable(name, operation="create")
    if needed <= set(_ALWAYS):
        return Protocol(min_reader_version=1, min_writer_version=2)
    listed = sorted(needed | set(_ALWAYS))
    for_readers = [name for name in listed if FEATURES[name].is_reader_feature]
    return Protocol(
        min_reader_version=3 if for_readers else 1,
        min_writer_version=7,
        reader_features=tuple(for_readers) if for_readers else None,
        writer_features=tuple(listed),
    )


def features_of_columns(metadata: Metadata) -> set[str]:
    """Return the features that the types of columns need."""
    return {name for type_, name in _FEATURES_BY_TYPE.items() if has_type(type_)(metadata)}


def require_writable(name: str, *, operation: str) -> None:
    """Raise RefusedError for a feature with which lakehand could not write the table."""
    feature = FEATURES.get(name)
    reason = "lakehand does not know it" if feature is None else feature.reason
    if feature is None or Verdict.REFUSED in {feature.read, feature.rewrite, feature.append}:
        message = f"the feature {name} cannot be added to a table: {reason}"
        raise errors.RefusedError(message, operation=operation, feature=name)


def _version_0(metadata: Metadata, protocol: Protocol, *, token: str, clock: Clock) -> bytes:
    now_ms = _milliseconds(clock)
    info: dict[str, Any] = {
        "timestamp": now_ms,
        "operation": "CREATE TABLE",
        "operationParameters": encode_parameters(
            {
                "partitionBy": list(metadata.partition_columns),
                "clusterBy": [],
                "isManaged": "false",
                "properties": dict(metadata.configuration),
            }
        ),
        "isolationLevel": "Serializable",
        "isBlindAppend": True,
        "operationMetrics": {},
        "engineInfo": ENGINE_INFO,
        "txnId": token,
    }
    if "inCommitTimestamp" in (protocol.writer_features or ()):
        info = {"inCommitTimestamp": now_ms, **info}
    return encode_actions(
        [("commitInfo", info), ("protocol", protocol.to_json()), ("metaData", metadata.to_json())]
    )


def _milliseconds(clock: Clock) -> int:
    return int(clock.now().timestamp() * 1000)


def _exists(store: Store) -> errors.TableExistsError:
    return errors.TableExistsError(
        f"there already is a table at {store.url}",
        table=store.url,
        hint="open it with open_table, or choose another place",
    )


def _unknown(store: Store) -> errors.CommitUnknownError:
    return errors.CommitUnknownError(
        f"cannot tell whether the table at {store.url} was created: the store did not confirm it",
        table=store.url,
        expected_version=0,
        hint="check whether the table exists before you create it again",
    )
