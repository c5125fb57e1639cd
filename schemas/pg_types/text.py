"""Text, and what is carried as the text that Postgres prints."""

from __future__ import annotations

from schemas.pg_types.pg_type import PgType

_UUID = {"type": "string", "logicalType": "uuid"}
_NAMED = "the name, with its schema unless that is `pg_catalog`"


def _as_text(oid: int, array_oid: int, name: str, note: str = "", delimiter: str = ",") -> PgType:
    return PgType(oid, array_oid, name, str, "string", note, delimiter)


TEXTS = (
    _as_text(25, 1009, "text"),
    _as_text(1043, 1015, "varchar"),
    _as_text(1042, 1014, "bpchar", "`char(n)`, with the spaces at its end"),
    _as_text(18, 1002, "char", 'the one-byte type `"char"`'),
    _as_text(19, 1003, "name"),
    _as_text(114, 199, "json", "as it was written"),
    _as_text(3802, 3807, "jsonb", "as Postgres prints it"),
    _as_text(4072, 4073, "jsonpath"),
    PgType(2950, 2951, "uuid", str, _UUID),
    _as_text(1186, 1187, "interval", "`IntervalStyle = postgres`"),
    _as_text(1266, 1270, "timetz", "with its own offset, `24:00:00` included"),
    _as_text(790, 791, "money", "`lc_monetary = C`: `$1,234.56`"),
    _as_text(142, 143, "xml", "as Postgres prints it, which leaves a declaration out that says nothing"),
    _as_text(1560, 1561, "bit"),
    _as_text(1562, 1563, "varbit"),
    _as_text(869, 1041, "inet"),
    _as_text(650, 651, "cidr"),
    _as_text(829, 1040, "macaddr"),
    _as_text(774, 775, "macaddr8"),
    _as_text(3614, 3643, "tsvector"),
    _as_text(3615, 3645, "tsquery"),
    _as_text(600, 1017, "point"),
    _as_text(601, 1018, "lseg"),
    _as_text(602, 1019, "path"),
    _as_text(603, 1020, "box", "in an array, the items are divided by `;`", ";"),
    _as_text(604, 1027, "polygon"),
    _as_text(628, 629, "line"),
    _as_text(718, 719, "circle"),
    _as_text(3904, 3905, "int4range"),
    _as_text(3926, 3927, "int8range"),
    _as_text(3906, 3907, "numrange"),
    _as_text(3908, 3909, "tsrange"),
    _as_text(3910, 3911, "tstzrange", "in UTC"),
    _as_text(3912, 3913, "daterange"),
    _as_text(4451, 6150, "int4multirange"),
    _as_text(4536, 6157, "int8multirange"),
    _as_text(4532, 6151, "nummultirange"),
    _as_text(4533, 6152, "tsmultirange"),
    _as_text(4534, 6153, "tstzmultirange", "in UTC"),
    _as_text(4535, 6155, "datemultirange"),
    _as_text(3220, 3221, "pg_lsn"),
    _as_text(2970, 2949, "txid_snapshot"),
    _as_text(5038, 5039, "pg_snapshot"),
    _as_text(28, 1011, "xid"),
    _as_text(5069, 271, "xid8"),
    _as_text(29, 1012, "cid"),
    _as_text(27, 1010, "tid"),
    _as_text(22, 1006, "int2vector", "numbers divided by spaces"),
    _as_text(30, 1013, "oidvector", "numbers divided by spaces"),
    _as_text(2205, 2210, "regclass", _NAMED),
    _as_text(4191, 4192, "regcollation", _NAMED),
    _as_text(3734, 3735, "regconfig", _NAMED),
    _as_text(3769, 3770, "regdictionary", _NAMED),
    _as_text(4089, 4090, "regnamespace", "the name"),
    _as_text(2203, 2208, "regoper", _NAMED),
    _as_text(2204, 2209, "regoperator", _NAMED),
    _as_text(24, 1008, "regproc", _NAMED),
    _as_text(2202, 2207, "regprocedure", _NAMED),
    _as_text(4096, 4097, "regrole", "the name"),
    _as_text(2206, 2211, "regtype", _NAMED),
    _as_text(1033, 1034, "aclitem"),
    _as_text(1790, 2201, "refcursor"),
)
