//! Ports and addresses of other instances.

use std::str::FromStr;

use super::value_from_text;

/// A TCP port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port(pub u16);

impl FromStr for Port {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let port = text.parse().ok().filter(|port| *port != 0);
        port.map(Self).ok_or("expected a port from 1 to 65535")
    }
}

value_from_text!(Port, "a port from 1 to 65535");

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address(pub String);

impl FromStr for Address {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<Port>().is_ok() => {
                Ok(Self(text.to_owned()))
            }
            _ => Err("expected an address such as 10.0.0.7:1337"),
        }
    }
}

value_from_text!(Address, "an address such as \"10.0.0.7:1337\"");

#[cfg(test)]
mod tests {
    use super::{Address, Port};

    #[test]
    fn ports_and_addresses() {
        assert_eq!("1337".parse(), Ok(Port(1337)));
        assert!("0".parse::<Port>().is_err() && "70000".parse::<Port>().is_err());
        assert!("10.0.0.7:1337".parse::<Address>().is_ok() && "[::1]:1".parse::<Address>().is_ok());
        for wrong in ["1337", ":1", "host", "host:", "host:0"] {
            assert!(wrong.parse::<Address>().is_err(), "{wrong}");
        }
    }
}
