"""Table features as the Delta project names them, to compare lakehand's list with.

Taken from delta-io/delta at bb1057f436 (2026-08-22): the names in PROTOCOL.md (its appendix and the
sections of each feature), in the open proposals of protocol_rfcs/, and in delta-spark 4.4 and Delta
Kernel, which know some that are not specified. The value says whether readers must know it.
"""

from __future__ import annotations

#: In PROTOCOL.md.
SPECIFIED = {
    "allowColumnDefaults": False,
    "appendOnly": False,
    "catalogManaged": True,
    "changeDataFeed": False,
    "checkConstraints": False,
    "clustering": False,
    "columnMapping": True,
    "deletionVectors": True,
    "domainMetadata": False,
    "generatedColumns": False,
    "icebergCompatV1": False,
    "icebergCompatV2": False,
    "identityColumns": False,
    "inCommitTimestamp": False,
    "invariants": False,
    "rowTracking": False,
    "timestampNtz": True,
    "typeWidening": True,
    "v2Checkpoint": True,
    "vacuumProtocolCheck": True,
    "variantShredding": True,
    "variantType": True,
}
#: In the proposals, and accepted ones that are not in PROTOCOL.md yet.
PROPOSED = {
    "adaptiveMetadata": True,
    "checkpointProtection": False,
    "collations": False,
    "columnMappingUsageTracking": False,
    "icebergCompatV3": False,
    "icebergWriterCompatV1": False,
    "materializePartitionColumns": False,
    "timestampNanos": True,
}
#: In delta-spark 4.4 or Delta Kernel only.
IMPLEMENTED = {
    "adaptiveMetadata-preview": True,
    "catalogOwned-preview": True,
    "collations-preview": False,
    "coordinatedCommits-preview": False,
    "geospatial": True,
    "geospatial-dev": True,
    "icebergWriterCompatV3": False,
    "redirectReaderWriter-preview": True,
    "redirectWriterOnly-preview": False,
    "typeWidening-preview": True,
    "variantShredding-preview": True,
    "variantType-preview": True,
}
ALL = SPECIFIED | PROPOSED | IMPLEMENTED
