//! Exchanges test cases with instances on other machines: an input, and the path to its image in the tree.
//!
//! Images are not sent. The receiver makes an image again by following its path.

use std::sync::{Mutex, PoisonError};

use powerfail_fuzz_engine::exchange::Exchange;
use powerfail_fuzz_store::{Edge, Images, TestCase};
use powerfail_image::ImageId;
use serde::{Deserialize, Serialize};

use crate::error::CampaignError;
use crate::options::MachineLink;

/// A test case on the wire.
#[derive(Debug, Serialize, Deserialize)]
struct Message {
    image: String,
    path: Vec<(Vec<u8>, Option<u64>)>,
    input: Vec<u8>,
}

/// A test case of another machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RemoteCase {
    pub(crate) case: TestCase,
    /// The path to its image, from the empty one.
    pub(crate) path: Vec<Edge>,
}

/// The connection to instances on other machines.
#[derive(Debug)]
pub(crate) struct Machines(Mutex<Exchange>);

impl Machines {
    /// Connects, if the options ask for it.
    pub(crate) fn connect(link: Option<&MachineLink>) -> Result<Option<Self>, CampaignError> {
        let (exchange, flag) = match link {
            None => return Ok(None),
            Some(MachineLink::Broker(port)) => (
                Exchange::broker(("0.0.0.0", *port)),
                format!("--broker {port}"),
            ),
            Some(MachineLink::Join(address)) => (
                Exchange::join(address.as_str()),
                format!("--join {address}"),
            ),
        };
        let exchange =
            exchange.map_err(|error| CampaignError::Wrong(format!("{flag}: {error}")))?;
        Ok(Some(Self(Mutex::new(exchange))))
    }

    /// Sends a test case to all others, unless its path begins with an image that the user gave: the others cannot
    /// make that one.
    pub(crate) fn send(&self, case: &TestCase, images: &Images) -> Result<(), CampaignError> {
        let ancestors = images.ancestors(case.image)?;
        if ancestors.first().is_none_or(|it| it.id != Images::empty()) {
            return Ok(());
        }
        let path = images.path(case.image)?;
        let bytes = write(case, &path);
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .send(bytes);
        Ok(())
    }

    /// The next test case of another machine. Messages that cannot be read are dropped.
    pub(crate) fn receive(&self) -> Option<RemoteCase> {
        let exchange = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(received) = read(&exchange.try_receive()?) {
                return Some(received);
            }
        }
    }
}

fn write(case: &TestCase, path: &[Edge]) -> Vec<u8> {
    let edge = |edge: &Edge| (edge.input.clone(), edge.failure_point);
    let message = Message {
        image: case.image.to_string(),
        path: path.iter().map(edge).collect(),
        input: case.input.clone(),
    };
    serde_json::to_vec(&message).unwrap_or_default()
}

fn read(bytes: &[u8]) -> Option<RemoteCase> {
    let message: Message = serde_json::from_slice(bytes).ok()?;
    let image: ImageId = message.image.parse().ok()?;
    let edges = message.path.into_iter();
    Some(RemoteCase {
        case: TestCase {
            image,
            input: message.input,
        },
        path: edges
            .map(|(input, failure_point)| Edge {
                input,
                failure_point,
            })
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use powerfail_fuzz_store::{Edge, Images, TestCase};

    use super::{RemoteCase, read, write};

    #[test]
    fn what_is_sent_is_received() {
        let case = TestCase {
            image: Images::empty(),
            input: b"put a\0\xff".to_vec(),
        };
        let path = vec![Edge {
            input: b"x".to_vec(),
            failure_point: Some(7),
        }];
        let bytes = write(&case, &path);
        assert_eq!(read(&bytes), Some(RemoteCase { case, path }));
        assert_eq!(read(b"something else"), None);
    }
}
