//! redb, sled and fjall.
//!
//! `rustdb run DIR DATABASE` commits the records 1 to 4, durably, and prints each after it was acknowledged. `rustdb check DIR
//! DATABASE` fails unless exactly the records 1 to n are there for some n, and prints them.

use std::error::Error;

const RECORDS: u32 = 4;

type Failure = Box<dyn Error>;
type Records = Vec<(Vec<u8>, Vec<u8>)>;

fn text(number: u32) -> String {
    format!("record {number} ").repeat(20)
}

fn verify(found: Records) -> Result<(), Failure> {
    for (number, (key, value)) in (1..).zip(found) {
        if key != u32::to_be_bytes(number) || value != text(number).as_bytes() {
            return Err(format!("record {number} is wrong").into());
        }
        println!("{number}");
    }
    Ok(())
}

/// Inserts all records one by one.
fn run(mut insert: impl FnMut([u8; 4], &str) -> Result<(), Failure>) -> Result<(), Failure> {
    for number in 1..=RECORDS {
        insert(number.to_be_bytes(), &text(number))?;
        println!("saved {number}");
    }
    Ok(())
}

fn with_redb(is_run: bool, path: &str) -> Result<(), Failure> {
    use redb::ReadableTable;

    const TABLE: redb::TableDefinition<&[u8], &[u8]> = redb::TableDefinition::new("records");
    let database = redb::Database::create(path)?;
    if is_run {
        return run(|key, value| {
            let transaction = database.begin_write()?;
            transaction
                .open_table(TABLE)?
                .insert(&key[..], value.as_bytes())?;
            Ok(transaction.commit()?)
        });
    }
    let transaction = database.begin_read()?;
    let table = match transaction.open_table(TABLE) {
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(()),
        table => table?,
    };
    let mut found = Records::new();
    for item in table.iter()? {
        let (key, value) = item?;
        found.push((key.value().to_vec(), value.value().to_vec()));
    }
    verify(found)
}

fn with_sled(is_run: bool, path: &str) -> Result<(), Failure> {
    let configuration = sled::Config::new().path(path).flush_every_ms(None);
    let database = configuration.segment_size(16 << 10).open()?;
    if is_run {
        return run(|key, value| {
            database.insert(key, value)?;
            database.flush()?;
            Ok(())
        });
    }
    let found: Result<Vec<_>, _> = database.iter().collect();
    let found = found?.into_iter();
    verify(
        found
            .map(|(key, value)| (key.to_vec(), value.to_vec()))
            .collect(),
    )
}

fn with_fjall(is_run: bool, path: &str) -> Result<(), Failure> {
    let keyspace = fjall::Config::new(path).open()?;
    let table = keyspace.open_partition("records", fjall::PartitionCreateOptions::default())?;
    if is_run {
        return run(|key, value| {
            table.insert(key, value)?;
            Ok(keyspace.persist(fjall::PersistMode::SyncAll)?)
        });
    }
    let found: Result<Vec<_>, _> = table.iter().collect();
    let found = found?.into_iter();
    verify(
        found
            .map(|(key, value)| (key.to_vec(), value.to_vec()))
            .collect(),
    )
}

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [command, directory, database] = &words[..] else {
        return Err("rustdb run|check DIR redb|sled|fjall".into());
    };
    let (is_run, path) = (command == "run", format!("{directory}/db"));
    match database.as_str() {
        "redb" => with_redb(is_run, &path),
        "sled" => with_sled(is_run, &path),
        _ => with_fjall(is_run, &path),
    }
}
