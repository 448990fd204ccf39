//! Contents and inputs are passed to the target.

use powerfail_image::{DirectoryContents, FileContents};
use powerfail_model::{PoolIndex, PoolOffset};
use powerfail_recorder::InputChannel;
use powerfail_recorder::{Input, TargetStatus, input_path, pool_directory, pool_path};

use super::{Campaign, build};

fn takes() -> std::path::PathBuf {
    build("takes", &[])
}

/// A pool that begins with a text.
fn contents(text: &[u8]) -> DirectoryContents {
    let mut page = [0; 4096];
    page[..text.len()].copy_from_slice(text);
    let mut pool = FileContents {
        len_bytes: 8192,
        ..FileContents::default()
    };
    pool.set_page(0, &page);
    let files = [("pool".to_owned(), pool)];
    DirectoryContents {
        files: files.into_iter().collect(),
    }
}

#[test]
fn an_input_comes_in_three_ways() {
    let campaign = Campaign::new();
    let cases: [(&[&str], InputChannel, &[u8], &str); 3] = [
        (
            &["stdin", "{pool}"],
            InputChannel::Stdin,
            b"from stdin",
            "from stdin",
        ),
        (
            &["file", "{pool}", "{input}"],
            InputChannel::File,
            b"from a file",
            "from a file",
        ),
        (
            &["arguments", "{pool}", "{input}", "end"],
            InputChannel::Arguments,
            b"a b\nc",
            "a|b|c|end|",
        ),
    ];
    for (arguments, channel, bytes, taken) in cases {
        let mut options = campaign.options(&takes(), arguments);
        options.contents = Some(contents(b"before"));
        options.input = Some(Input {
            bytes: bytes.to_vec(),
            channel,
        });
        let recording = Campaign::record(&options);
        assert_eq!(recording.summary.status, TargetStatus::Exited(0));
        let directory = campaign.directory.path().join("slot");
        let path = pool_path(&directory);
        assert_eq!(
            recording.output,
            format!("old: found 'before' at {}\n", path.display())
        );
        // The trace has the initial content and the result.
        let pools = recording.trace.pools();
        assert_eq!(pools.len(), 1);
        assert_eq!((&pools[0].path, pools[0].len_bytes), (&path, 8192));
        let mut runs = recording.trace.initial_image(PoolIndex(0));
        let run = runs.next_run().unwrap().unwrap();
        assert_eq!(run.offset, PoolOffset(0));
        assert!(run.bytes.starts_with(b"before\0"));
        assert_eq!(recording.pool_begins(taken.len()), taken.as_bytes());
        // Nothing is left behind.
        assert!(!pool_directory(&directory).exists() && !input_path(&directory).exists());
    }
}

#[test]
fn no_contents_is_no_pool() {
    let campaign = Campaign::new();
    let mut options = campaign.options(&takes(), &["stdin", "{pool}"]);
    options.input = Some(Input {
        bytes: Vec::new(),
        channel: InputChannel::Stdin,
    });
    let recording = Campaign::record(&options);
    assert!(
        recording.output.starts_with("new: found ''"),
        "{}",
        recording.output
    );
}
