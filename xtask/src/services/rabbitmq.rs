//! RabbitMQ from Debian, with Erlang's port mapper as its companion.

use super::home::Home;
use super::server::{Room, Server, USER};
use super::state::Entry;
use super::wire::Wire;
use super::{ports, ready};
use crate::apt::Package;
use crate::tools::server_program;
use std::fs;
use std::path::Path;

/// The script itself: the one in /usr/sbin changes the user, which is done already.
const SCRIPT: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";

pub(crate) struct RabbitMq;

impl Server for RabbitMq {
    fn name(&self) -> &'static str {
        "rabbitmq"
    }

    fn variable(&self) -> &'static str {
        "POSTRIDER_TEST_RABBITMQ_URL"
    }

    fn missing(&self, _: &Home) -> Vec<Package> {
        let package = Package {
            name: "rabbitmq-server",
            units: &["rabbitmq-server.service", "epmd.service", "epmd.socket"],
        };
        if Path::new(SCRIPT).is_file() { Vec::new() } else { vec![package] }
    }

    fn account(&self) -> Option<&'static str> {
        Some("rabbitmq")
    }

    fn launch(&self, room: &Room<'_>) -> Result<String, String> {
        let folder = room.folder();
        // Erlang would start a port mapper that outlives the server, so this starts one that is on record.
        let mapper_port = room.entry.inner_port.to_string();
        let mut mapper = room.command(&server_program("epmd").ok_or("epmd is not here.")?);
        mapper.args(["-address", "127.0.0.1", "-port", &mapper_port]);
        room.launch_companion("epmd", mapper)?;
        ready::wait_for_port(room.entry.inner_port)?;

        let between_nodes = ports::free(1)?.first().copied().ok_or("There is no port.")?;
        let configuration = room.write("rabbitmq.conf", &configuration(room.entry))?;
        let plugins = room.write("enabled_plugins", "[].\n")?;
        let mut server = room.command(Path::new(SCRIPT));
        server
            // The script becomes the server instead of waiting for it. `-noinput` keeps the server from reading anyway.
            .env("RABBITMQ_ALLOW_INPUT", "true")
            .env(
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
                "-noinput -kernel inet_dist_use_interface {127,0,0,1}",
            )
            .env("ERL_EPMD_PORT", &mapper_port)
            .env("ERL_EPMD_ADDRESS", "127.0.0.1")
            .env("RABBITMQ_NODENAME", format!("postrider-{}@localhost", room.entry.port))
            .env("RABBITMQ_DIST_PORT", between_nodes.to_string())
            .env("RABBITMQ_CONF_ENV_FILE", folder.join("none"))
            .env("RABBITMQ_CONFIG_FILE", configuration)
            .env("RABBITMQ_ADVANCED_CONFIG_FILE", folder.join("none"))
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", plugins)
            .env("RABBITMQ_MNESIA_BASE", folder.join("mnesia"))
            .env("RABBITMQ_LOG_BASE", folder.join("log"))
            .env("RABBITMQ_LOGS", "-")
            .env("RABBITMQ_PID_FILE", folder.join("pid"));
        room.launch(server)?;
        version().ok_or_else(|| "RabbitMQ's folder names no version.".to_owned())
    }

    /// Signs in by AMQP 0-9-1: the server sends `start`, the client name and password, the server its limits.
    fn ready(&self, room: &Room<'_>) -> Result<(), String> {
        let mut wire = Wire::connect(room.entry.port)?;
        wire.send(b"AMQP\x00\x00\x09\x01")?;
        expect_method(&mut wire, START)?;
        wire.send(&start_ok(&room.entry.password)?)?;
        expect_method(&mut wire, TUNE)
    }

    fn url(&self, entry: &Entry) -> String {
        format!("amqp://{USER}:{}@127.0.0.1:{}/%2f", entry.password, entry.port)
    }
}

fn configuration(entry: &Entry) -> String {
    format!(
        "listeners.tcp.1 = 127.0.0.1:{}\n\
         default_user = {USER}\n\
         default_pass = {}\n\
         loopback_users = none\n\
         disk_free_limit.absolute = 50MB\n",
        entry.port, entry.password
    )
}

/// Read from the name of its folder: asking the program would take seconds.
fn version() -> Option<String> {
    fs::read_dir("/usr/lib/rabbitmq/lib")
        .ok()?
        .filter_map(|folder| {
            folder.ok()?.file_name().to_str()?.strip_prefix("rabbitmq_server-").map(str::to_owned)
        })
        .next()
}

/// The class `connection` and its methods `start`, `start-ok` and `tune`.
const START: [u8; 4] = [0, 10, 0, 10];
const START_OK: [u8; 4] = [0, 10, 0, 11];
const TUNE: [u8; 4] = [0, 10, 0, 30];
const METHOD_FRAME: u8 = 1;
const FRAME_END: u8 = 0xCE;

/// Reads a frame on channel 0 that must hold this method.
fn expect_method(wire: &mut Wire, expected: [u8; 4]) -> Result<(), String> {
    let [kind, 0, 0, a, b, c, d] = wire.receive()? else {
        return Err("It answers on a channel other than 0.".to_owned());
    };
    let method: [u8; 4] = wire.receive()?;
    // The rest of the frame and its end.
    wire.skip((u32::from_be_bytes([a, b, c, d]) + 1).saturating_sub(4))?;
    if (kind, method) == (METHOD_FRAME, expected) {
        Ok(())
    } else {
        Err(format!("It answers with {method:?}."))
    }
}

fn start_ok(password: &str) -> Result<Vec<u8>, String> {
    let length = |bytes: usize| u32::try_from(bytes).map(u32::to_be_bytes).map_err(|error| error.to_string());
    let secret = format!("\0{USER}\0{password}");
    let mut method = START_OK.to_vec();
    method.extend([0; 4]); // no properties of the client
    method.extend(b"\x05PLAIN");
    method.extend(length(secret.len())?);
    method.extend(secret.as_bytes());
    method.extend(b"\x05en_US");
    let mut frame = vec![METHOD_FRAME, 0, 0];
    frame.extend(length(method.len())?);
    frame.extend(method);
    frame.push(FRAME_END);
    Ok(frame)
}
