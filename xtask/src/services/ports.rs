//! Free ports of the loopback interface.

use std::net::{Ipv4Addr, TcpListener};

/// So many free ports. It holds all of them until the last is chosen, so that no two are the same.
pub(crate) fn free(count: usize) -> Result<Vec<u16>, String> {
    let choose = || {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        Ok((listener.local_addr()?.port(), listener))
    };
    let held: Result<Vec<_>, std::io::Error> = (0..count).map(|_| choose()).collect();
    let held = held.map_err(|error| format!("No free port on 127.0.0.1: {error}"))?;
    Ok(held.into_iter().map(|(port, _)| port).collect())
}

/// Whether the port is free.
pub(crate) fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ports_are_free_and_all_different() {
        let ports = free(20).unwrap();
        assert_eq!(ports.iter().collect::<BTreeSet<_>>().len(), 20);
    }

    #[test]
    fn a_port_that_somebody_listens_on_is_not_free() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        assert!(!is_free(listener.local_addr().unwrap().port()));
    }
}
