//! An exchange: a broker in this process, with one client that sends and receives. Brokers are connected over TCP.
//!
//! LLMP numbers its clients in three places independently: the broker counts those that it added, each
//! listener those that it accepted, and a connection to another broker takes the next number silently. Messages between equal
//! numbers are dropped as echoes. So the order matters here: first the listener for the own client, then that client, then
//! everything else.

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

/// How long the thread waits for messages to send before it checks for messages to receive.
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

/// Sends messages to other instances and receives theirs, in the background, until the process ends.
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
    /// No broker listens on the address.
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

    /// Sends a message to all others; returns false if the exchange has ended.
    pub fn send(&self, message: Vec<u8>) -> bool {
        self.outgoing.send(message).is_ok()
    }

    /// A message of another instance, if there is one.
    pub fn try_receive(&self) -> Option<Vec<u8>> {
        self.incoming.try_recv().ok()
    }

    /// Waits for a message of another instance.
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
                    // An error of LLMP ends the exchange, and `send` returns false.
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

/// A broker and its connected client.
fn set_up(
    connect: impl FnOnce(&mut OurBroker) -> Result<(), Error>,
) -> Result<(OurBroker, OurClient), Error> {
    let mut broker = LlmpBroker::new(ProcessMemoryProvider, ())?;
    let local = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = local.local_addr()?.port();
    broker.inner_mut().launch_listener(Listener::Tcp(local))?;
    let client = LlmpClient::create_attach_to_tcp(ProcessMemoryProvider, port)?;
    // The listener has announced the client. The broker must register it before it counts further.
    while broker.num_clients_seen() < 2 {
        broker.broker_once()?;
    }
    connect(&mut broker)?;
    Ok((broker, client))
}

/// Sends and receives until the exchange is dropped.
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
