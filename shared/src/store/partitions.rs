use diesel::{PgConnection, QueryableByName, RunQueryDsl};

use super::{Bind, Sql, StoreError};

/// Creates the raw store's partitions of this week and the next `weeks_ahead` weeks, where they are missing.
pub fn ensure_partitions(connection: &mut PgConnection, weeks_ahead: i32) -> Result<(), StoreError> {
    Sql::new("SELECT webhook.ensure_raw_partitions($1)", &[Bind::Int(weeks_ahead)]).run(connection)?;
    Ok(())
}

#[derive(QueryableByName)]
struct Ahead {
    #[diesel(sql_type = diesel::sql_types::Integer)]
    weeks: i32,
}

/// For how many full weeks after this one the raw store has partitions. Negative: this week has none.
pub fn weeks_ahead(connection: &mut PgConnection) -> Result<i32, StoreError> {
    // A gap counts as the end: partitions behind it are of no use today.
    const COUNT: &str = "
        SELECT coalesce(min(week) - 1, 52)::integer AS weeks FROM generate_series(0, 52) AS week
         WHERE to_regclass('webhook.raw_events_'
               || to_char((now() AT TIME ZONE 'UTC') + week * interval '7 days', 'IYYY\"w\"IW')) IS NULL";
    Ok(Sql::new(COUNT, &[]).get_result::<Ahead>(connection)?.weeks)
}
