//! Both ends of an exchange: a broker in this process, with one client of our own that sends and receives.
//! Brokers speak with each other over TCP.
//!
//! LLMP numbers its clients in three places that do not know of each other: the broker counts those that it
//! has added, each listener those that it has accepted, and a connection to another broker takes the next
//! number without telling. With equal numbers messages are taken for echoes and dropped. So the order here
//! matters: the listener for our own client comes first, then that client, then everything else.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::thread;
use std::time::Duration;

use libafl_bolts::Error;
use ll_mp::{Broker, Listener, LlmpBroker, LlmpClient, Tag};
use thiserror::Error;

use super::memory::{ProcessMemory, ProcessMemoryProvider};

/// Marks our messages.
const MESSAGE: Tag = Tag(0x7066_0001);

/// How long the thread waits for something to send before it looks for something to receive.
const PAUSE: Duration = Duration::from_millis(10);

type OurBroker = LlmpBroker<(), ProcessMemory, ProcessMemoryProvider>;
type OurClient = LlmpClient<ProcessMemory, ProcessMemoryProvider>;

/// An exchange cannot be set up.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct ExchangeError(String);

impl ExchangeError {
    fn new(what: &str, why: impl std::fmt::Display) -> Self {
        Self(format!("{what}: {why}"))
    }
}

/// A place to send messages to and to receive those of others from. It works in the background until the
/// process ends.
#[derive(Debug)]
pub struct Exchange {
    outgoing: Sender<Vec<u8>>,
    incoming: Receiver<Vec<u8>>,
    address: Option<SocketAddr>,
}

impl Exchange {
    /// Listens on an address for others to join.
    ///
    /// # Errors
    /// The address is not free, or not of this machine.
    pub fn broker(address: impl ToSocketAddrs) -> Result<Self, ExchangeError> {
        let listener =
            TcpListener::bind(address).map_err(|why| ExchangeError::new("cannot listen", why))?;
        let address = listener
            .local_addr()
            .map_err(|why| ExchangeError::new("cannot listen", why))?;
        Self::start(Some(address), move |broker| {
            broker
                .inner_mut()
                .launch_listener(Listener::Tcp(listener))
                .map(drop)
        })
    }

    /// Joins the broker that listens on an address.
    ///
    /// # Errors
    /// Nobody listens there, or somebody who speaks something else.
    pub fn join(address: impl ToSocketAddrs) -> Result<Self, ExchangeError> {
        let addresses: Vec<SocketAddr> = address
            .to_socket_addrs()
            .map_err(|why| ExchangeError::new("cannot join", why))?
            .collect();
        Self::start(None, move |broker| {
            broker.inner_mut().connect_b2b(addresses.as_slice())
        })
    }

    /// The address on which others can join.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Sends a message to all others. Says whether that is still possible.
    pub fn send(&self, message: Vec<u8>) -> bool {
        self.outgoing.send(message).is_ok()
    }

    /// A message of others, if there is one.
    pub fn try_receive(&self) -> Option<Vec<u8>> {
        self.incoming.try_recv().ok()
    }

    /// A message of others. Waits for one.
    pub fn receive(&self, longest: Duration) -> Option<Vec<u8>> {
        self.incoming.recv_timeout(longest).ok()
    }

    fn start(
        address: Option<SocketAddr>,
        connect: impl FnOnce(&mut OurBroker) -> Result<(), Error> + Send + 'static,
    ) -> Result<Self, ExchangeError> {
        let (outgoing, to_send) = mpsc::channel();
        let (received, incoming) = mpsc::channel();
        let (started, starts) = mpsc::channel();
        let work = move || match set_up(connect) {
            Ok((mut broker, mut client)) => {
                if started.send(Ok(())).is_ok() {
                    // An error of LLMP ends the exchange; whoever sends is told.
                    let _ = serve(&mut broker, &mut client, &to_send, &received);
                }
            }
            Err(why) => drop(started.send(Err(ExchangeError::new("cannot start LLMP", why)))),
        };
        let thread = thread::Builder::new()
            .name("exchange".to_owned())
            .spawn(work);
        thread.map_err(|why| ExchangeError::new("cannot start a thread", why))?;
        starts
            .recv()
            .map_err(|why| ExchangeError::new("cannot start LLMP", why))??;
        Ok(Self {
            outgoing,
            incoming,
            address,
        })
    }
}

/// A broker with our client, connected.
fn set_up(
    connect: impl FnOnce(&mut OurBroker) -> Result<(), Error>,
) -> Result<(OurBroker, OurClient), Error> {
    let mut broker = LlmpBroker::new(ProcessMemoryProvider, ())?;
    let local = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = local.local_addr()?.port();
    broker.inner_mut().launch_listener(Listener::Tcp(local))?;
    let client = LlmpClient::create_attach_to_tcp(ProcessMemoryProvider, port)?;
    // The listener has announced the client; the broker has to take notice before it counts on.
    while broker.num_clients_seen() < 2 {
        broker.broker_once()?;
    }
    connect(&mut broker)?;
    Ok((broker, client))
}

/// Sends and receives until nobody is interested any more.
fn serve(
    broker: &mut OurBroker,
    client: &mut OurClient,
    to_send: &Receiver<Vec<u8>>,
    received: &Sender<Vec<u8>>,
) -> Result<(), Error> {
    loop {
        match to_send.recv_timeout(PAUSE) {
            Ok(message) => client.send_buf(MESSAGE, &message)?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
        loop {
            broker.broker_once()?;
            match to_send.try_recv() {
                Ok(message) => client.send_buf(MESSAGE, &message)?,
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Ok(()),
            }
        }
        let own = client.sender().id();
        while let Some((sender, tag, message)) = client.recv_buf()? {
            if sender != own && tag == MESSAGE && received.send(message.to_vec()).is_err() {
                return Ok(());
            }
        }
    }
}
