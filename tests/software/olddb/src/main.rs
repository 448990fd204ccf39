//! jammdb and an old persy.
//!
//! `olddb run DIR DATABASE` commits the records 1 to 4 and prints each after it was acknowledged. `olddb check DIR DATABASE` fails
//! unless exactly the records 1 to n are there for some n, and prints them.

use std::error::Error;
use std::path::Path;

const RECORDS: u32 = 4;

type Failure = Box<dyn Error>;

fn text(number: u32) -> String {
    format!("record {number} ").repeat(200)
}

fn verify(found: &[Vec<u8>]) -> Result<(), Failure> {
    for (number, value) in (1..).zip(found) {
        if *value != text(number).as_bytes() {
            return Err(format!("record {number} is wrong").into());
        }
        println!("{number}");
    }
    Ok(())
}

fn with_jammdb(is_run: bool, path: &str) -> Result<(), Failure> {
    let database = jammdb::DB::open(path)?;
    if is_run {
        for number in 1..=RECORDS {
            let transaction = database.tx(true)?;
            let bucket = transaction.get_or_create_bucket("records")?;
            bucket.put(number.to_be_bytes(), text(number))?;
            transaction.commit()?;
            println!("saved {number}");
        }
        return Ok(());
    }
    let transaction = database.tx(false)?;
    let bucket = match transaction.get_bucket("records") {
        Err(jammdb::Error::BucketMissing) => return Ok(()),
        bucket => bucket?,
    };
    let found: Vec<Vec<u8>> = bucket.kv_pairs().map(|it| it.value().to_vec()).collect();
    verify(&found)
}

fn with_persy(is_run: bool, path: &str) -> Result<(), Failure> {
    let failed = |error: persy::PersyError| -> Failure {
        match error {
            persy::PersyError::IO(text) | persy::PersyError::Err(text) => text.into(),
            _ => "persy".into(),
        }
    };
    let open = || persy::Persy::open(path, persy::Config::new()).map_err(failed);
    if is_run {
        persy::Persy::create(path).map_err(failed)?;
        let database = open()?;
        let mut transaction = database.begin().map_err(failed)?;
        database.create_segment(&mut transaction, "records").map_err(failed)?;
        let prepared = database.prepare_commit(transaction).map_err(failed)?;
        database.commit(prepared).map_err(failed)?;
        for number in 1..=RECORDS {
            let mut transaction = database.begin().map_err(failed)?;
            let record = text(number).into_bytes();
            database.insert_record(&mut transaction, "records", &record).map_err(failed)?;
            let prepared = database.prepare_commit(transaction).map_err(failed)?;
            database.commit(prepared).map_err(failed)?;
            println!("saved {number}");
        }
        return Ok(());
    }
    let database = open()?;
    if !database.exists_segment("records").map_err(failed)? {
        return Ok(());
    }
    let found: Vec<Vec<u8>> = database.scan_records("records").map_err(failed)?.into_iter().collect();
    verify(&found)
}

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [command, directory, database] = &words[..] else {
        return Err("olddb run|check DIR jammdb|persy".into());
    };
    let (is_run, path) = (command == "run", format!("{directory}/db"));
    if !is_run && !Path::new(&path).exists() {
        return Ok(());
    }
    match database.as_str() {
        "jammdb" => with_jammdb(is_run, &path),
        _ => with_persy(is_run, &path),
    }
}
