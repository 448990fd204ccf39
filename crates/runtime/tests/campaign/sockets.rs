//! Servers receive the input through sockets.

use powerfail_recorder::InputChannel;
use powerfail_recorder::{Input, TargetStatus};

use super::{Campaign, Recording, build};

fn serve(way: &str, input: &[u8]) -> Recording {
    let campaign = Campaign::new();
    let mut options = campaign.options(&build("server", &[]), &[way, "{pool}"]);
    options.desock = true;
    options.derandomise = true;
    options.input = Some(Input {
        bytes: input.to_vec(),
        channel: InputChannel::Stdin,
    });
    Campaign::record(&options)
}

#[test]
fn whatever_a_server_waits_with() {
    for way in ["poll", "select", "epoll", "accept", "threads"] {
        let recording = serve(way, b"first\nsecond\n\0\nthird\n\0\n");
        let (status, output) = (recording.summary.status, &recording.output);
        assert_eq!(status, TargetStatus::Exited(0), "{way}: {output}");
        assert_eq!(output, "end after 3 connections, 22 bytes\n", "{way}");
        let expected = b"\0\0\0\0\0\0\0\0first\nsecond\n#third\n##";
        assert_eq!(recording.pool_begins(expected.len()), expected, "{way}");
    }
}

#[test]
fn an_input_that_no_socket_holds_at_once() {
    let input: Vec<u8> = (0..900_000u32).map(|at| (at % 251) as u8 + 3).collect();
    for way in ["poll", "accept"] {
        let recording = serve(way, &input);
        let (status, output) = (recording.summary.status, &recording.output);
        assert_eq!(status, TargetStatus::Exited(0), "{way}: {output}");
        assert_eq!(output, "end after 1 connections, 900001 bytes\n");
        assert_eq!(recording.pool_begins(8 + input.len())[8..], input, "{way}");
    }
}

#[test]
fn no_input_is_one_empty_connection() {
    let recording = serve("poll", b"");
    assert_eq!(recording.output, "end after 1 connections, 1 bytes\n");
}

#[test]
fn memcached_of_debian() {
    let campaign = Campaign::new();
    let arguments = [
        "-u", "root", "-U", "0", "-t", "1", "-m", "64", "-e", "{pool}",
    ];
    let mut options = campaign.options("/usr/bin/memcached".as_ref(), &arguments);
    options.desock = true;
    options.derandomise = true;
    options.input = Some(Input {
        bytes: b"set key 0 0 9\r\npersisted\r\nget key\r\n".to_vec(),
        channel: InputChannel::Stdin,
    });
    let recording = Campaign::record(&options);
    assert_eq!(recording.summary.status, TargetStatus::Exited(0));
    let pool = recording.pool_begins(64 << 20);
    let is_there = |text: &[u8]| pool.windows(text.len()).any(|window| window == text);
    assert!(is_there(b"persisted\r\n"));
}
