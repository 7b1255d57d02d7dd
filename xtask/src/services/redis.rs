//! Redis from Debian. It keeps nothing on disk.

use super::home::Home;
use super::server::{Room, Server};
use super::state::Entry;
use super::wire::Wire;
use crate::apt::Package;
use crate::tools::server_program;

pub(crate) struct Redis;

impl Server for Redis {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn variable(&self) -> &'static str {
        "POSTRIDER_TEST_REDIS_URL"
    }

    fn missing(&self, _: &Home) -> Vec<Package> {
        let package = Package { name: "redis-server", units: &["redis-server.service"] };
        if server_program("redis-server").is_some() { Vec::new() } else { vec![package] }
    }

    fn launch(&self, room: &Room<'_>) -> Result<String, String> {
        let configuration = format!(
            "bind 127.0.0.1\nport {}\nrequirepass {}\ndir {}\nsave \"\"\nappendonly no\n",
            room.entry.port,
            room.entry.password,
            room.folder().display(),
        );
        let configuration = room.write("redis.conf", &configuration)?;
        let program = server_program("redis-server").ok_or("redis-server is not here.")?;
        let mut server = room.command(&program);
        server.arg(configuration);
        room.launch(server)?;
        room.version(&program)
    }

    fn ready(&self, room: &Room<'_>) -> Result<(), String> {
        let mut wire = Wire::connect(room.entry.port)?;
        wire.send(format!("AUTH {}\r\nPING\r\n", room.entry.password).as_bytes())?;
        wire.expect_line("+OK")?;
        wire.expect_line("+PONG")
    }

    fn url(&self, entry: &Entry) -> String {
        format!("redis://:{}@127.0.0.1:{}/", entry.password, entry.port)
    }
}
