use diesel::pg::Pg;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::result::QueryResult;
use diesel::sql_types::{
    Array, BigInt, Binary, Integer, Nullable, SmallInt, Text, Timestamptz, Untyped, Uuid as SqlUuid,
};
use diesel::{PgConnection, RunQueryDsl};
use uuid::Uuid;

use crate::domain::Time;

/// A value bound to a statement. Slices become arrays, for `unnest`.
#[derive(Clone, Copy)]
pub enum Bind<'a> {
    Uuid(Uuid),
    OptionalUuid(Option<Uuid>),
    Text(&'a str),
    OptionalText(Option<&'a str>),
    Int(i32),
    BigInt(i64),
    Bytes(&'a [u8]),
    Time(Time),
    OptionalTime(Option<Time>),
    Uuids(&'a [Uuid]),
    OptionalUuids(&'a [Option<Uuid>]),
    Texts(&'a [&'a str]),
    OptionalTexts(&'a [Option<&'a str>]),
    SmallInts(&'a [i16]),
    Ints(&'a [i32]),
    BigInts(&'a [i64]),
    ByteStrings(&'a [&'a [u8]]),
    Times(&'a [Time]),
    OptionalTimes(&'a [Option<Time>]),
}

/// A statement as it would be pasted into psql, with its values.
///
/// Placeholders stand in order and each stands once, because diesel numbers them itself. Unlike `diesel::sql_query`, the
/// statement is prepared once per connection and kept.
pub struct Sql<'a> {
    text: &'a str,
    binds: &'a [Bind<'a>],
}

impl<'a> Sql<'a> {
    pub fn new(text: &'a str, binds: &'a [Bind<'a>]) -> Self {
        Sql { text, binds }
    }

    /// Runs the statement and returns the number of rows it touched.
    pub fn run(self, connection: &mut PgConnection) -> QueryResult<usize> {
        self.execute(connection)
    }
}

impl QueryId for Sql<'_> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl Query for Sql<'_> {
    type SqlType = Untyped;
}

impl RunQueryDsl<PgConnection> for Sql<'_> {}

impl QueryFragment<Pg> for Sql<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        let mut rest = self.text;
        for (index, bind) in self.binds.iter().enumerate() {
            let placeholder = format!("${}", index + 1);
            let (before, after) = rest.split_once(placeholder.as_str()).ok_or_else(|| {
                diesel::result::Error::QueryBuilderError(
                    format!("placeholder {placeholder} is missing or out of order").into(),
                )
            })?;
            out.push_sql(before);
            bind.push(&mut out)?;
            rest = after;
        }
        out.push_sql(rest);
        Ok(())
    }
}

impl Bind<'_> {
    fn push<'b>(&'b self, out: &mut AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        match self {
            Bind::Uuid(value) => out.push_bind_param::<SqlUuid, _>(value),
            Bind::OptionalUuid(value) => out.push_bind_param::<Nullable<SqlUuid>, _>(value),
            Bind::Text(value) => out.push_bind_param::<Text, _>(*value),
            Bind::OptionalText(value) => out.push_bind_param::<Nullable<Text>, _>(value),
            Bind::Int(value) => out.push_bind_param::<Integer, _>(value),
            Bind::BigInt(value) => out.push_bind_param::<BigInt, _>(value),
            Bind::Bytes(value) => out.push_bind_param::<Binary, _>(*value),
            Bind::Time(value) => out.push_bind_param::<Timestamptz, _>(value),
            Bind::OptionalTime(value) => out.push_bind_param::<Nullable<Timestamptz>, _>(value),
            Bind::Uuids(values) => out.push_bind_param::<Array<SqlUuid>, _>(*values),
            Bind::OptionalUuids(values) => out.push_bind_param::<Array<Nullable<SqlUuid>>, _>(*values),
            Bind::Texts(values) => out.push_bind_param::<Array<Text>, _>(*values),
            Bind::OptionalTexts(values) => out.push_bind_param::<Array<Nullable<Text>>, _>(*values),
            Bind::SmallInts(values) => out.push_bind_param::<Array<SmallInt>, _>(*values),
            Bind::Ints(values) => out.push_bind_param::<Array<Integer>, _>(*values),
            Bind::BigInts(values) => out.push_bind_param::<Array<BigInt>, _>(*values),
            Bind::ByteStrings(values) => out.push_bind_param::<Array<Binary>, _>(*values),
            Bind::Times(values) => out.push_bind_param::<Array<Timestamptz>, _>(*values),
            Bind::OptionalTimes(values) => out.push_bind_param::<Array<Nullable<Timestamptz>>, _>(*values),
        }
    }
}
