//! Prints the SQL that creates what the Postgres store needs, for people that run such things themselves:
//! `cargo run --example postgres_schema -- [schema [lock table [fence table]]] | psql …`

use syncguard::{ClientOptions, LockError, PostgresBackend};

fn main() -> Result<(), LockError> {
    let mut names = std::env::args().skip(1);
    let mut options = ClientOptions::new();
    if let Some(schema) = names.next() {
        options = options.schema(&schema);
    }
    if let Some(table) = names.next() {
        options = options.table_name(&table);
    }
    if let Some(table) = names.next() {
        options = options.fence_table_name(&table);
    }
    print!("{}", PostgresBackend::schema_sql(&options)?);
    Ok(())
}
