//! Campaigns that exchange their finds over the loopback interface.

use std::collections::BTreeSet;
use std::time::Duration;

use powerfail_fuzz_engine::exchange::Exchange;

/// Long enough for any machine: nothing is measured, and only a lost message reaches the limit.
const LONG: Duration = Duration::from_mins(2);

/// Message number of a sender; some messages are longer than a page of LLMP.
fn message(sender: u8, number: u32) -> Vec<u8> {
    let len = if number % 16 == 3 {
        700_000
    } else {
        number as usize
    };
    [
        vec![sender],
        number.to_le_bytes().to_vec(),
        vec![sender ^ number as u8; len],
    ]
    .concat()
}

#[test]
fn what_one_sends_all_others_receive() {
    let broker = Exchange::broker("127.0.0.1:0").expect("a port is free");
    let address = broker.address().expect("a broker has an address");
    assert!(broker.send(message(0, 0)), "before any client has joined");
    let members = [
        broker,
        Exchange::join(address).unwrap(),
        Exchange::join(address).unwrap(),
    ];
    let count = 40;
    for number in 1..count {
        for (sender, member) in members.iter().enumerate() {
            assert!(member.send(message(sender as u8, number)));
        }
    }
    for (receiver, member) in members.iter().enumerate() {
        let mut expected = BTreeSet::new();
        for sender in (0..3_u8).filter(|sender| usize::from(*sender) != receiver) {
            let first = u32::from(sender != 0);
            expected.extend((first..count).map(|number| message(sender, number)));
        }
        while !expected.is_empty() {
            let received = member.receive(LONG).expect("everything arrives");
            assert!(
                expected.remove(&received),
                "{receiver} receives once what others send: {:?}",
                &received[..5]
            );
        }
    }
}

#[test]
fn joining_without_a_broker_is_an_error() {
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let error = Exchange::join(port).map(drop).unwrap_err().to_string();
    assert!(error.starts_with("cannot start LLMP: "), "{error}");
}
