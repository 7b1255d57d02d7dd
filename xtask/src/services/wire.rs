//! A few words of a server's own protocol, for servers whose packages bring no quick client.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

const TIME_MAX: Duration = Duration::from_secs(5);
const LINE_BYTES_MAX: usize = 64 * 1024;

pub(crate) struct Wire(TcpStream);

impl Wire {
    pub(crate) fn connect(port: u16) -> Result<Self, String> {
        let connected = TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), TIME_MAX)
            .and_then(|stream| {
                stream.set_read_timeout(Some(TIME_MAX))?;
                stream.set_write_timeout(Some(TIME_MAX))?;
                Ok(stream)
            });
        connected.map(Self).map_err(|error| format!("127.0.0.1:{port}: {error}"))
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.0.write_all(bytes).map_err(|error| format!("It does not listen: {error}"))
    }

    pub(crate) fn receive<const COUNT: usize>(&mut self) -> Result<[u8; COUNT], String> {
        let mut bytes = [0; COUNT];
        self.0.read_exact(&mut bytes).map_err(|error| format!("It does not answer: {error}"))?;
        Ok(bytes)
    }

    /// Reads over as many bytes.
    pub(crate) fn skip(&mut self, count: u32) -> Result<(), String> {
        for _ in 0..count {
            self.receive::<1>()?;
        }
        Ok(())
    }

    /// A line without its end, which is CR LF.
    pub(crate) fn line(&mut self) -> Result<String, String> {
        let mut line = Vec::new();
        while line.len() < LINE_BYTES_MAX {
            let [byte] = self.receive()?;
            if byte == b'\n' {
                return Ok(String::from_utf8_lossy(line.trim_ascii_end()).into_owned());
            }
            line.push(byte);
        }
        Err("It sends a line without end.".to_owned())
    }

    /// Reads a line that must be this one.
    pub(crate) fn expect_line(&mut self, expected: &str) -> Result<(), String> {
        let line = self.line()?;
        if line == expected { Ok(()) } else { Err(format!("It says {line:?} and not {expected:?}.")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    #[test]
    fn lines_are_read_one_by_one_and_compared() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = [0; 4];
            stream.read_exact(&mut asked).unwrap();
            stream.write_all(b"+OK\r\n+PONG\r\nxyz").unwrap();
            asked
        });
        let mut wire = Wire::connect(port).unwrap();
        wire.send(b"PING").unwrap();
        assert_eq!(wire.line().unwrap(), "+OK");
        assert!(wire.expect_line("+OK").unwrap_err().contains("+PONG"));
        wire.skip(1).unwrap();
        assert_eq!(wire.receive::<2>().unwrap(), *b"yz");
        assert!(wire.line().unwrap_err().contains("does not answer"));
        assert_eq!(server.join().unwrap(), *b"PING");
    }
}
