//! Apache Kafka, one node that is broker and controller, from Maven.

use super::clients::Client;
use super::home::{Home, random_hex};
use super::packages::Artefact;
use super::server::{Room, Server};
use super::state::Entry;
use super::wire::Wire;
use crate::apt::Package;
use crate::tools::server_program;
use std::path::PathBuf;
use std::process::Command;

const BROKER: Artefact = Artefact { group: "org.apache.kafka", name: "kafka_2.13", version: "4.1.2" };
/// Its command line tools.
const TOOLS: Artefact = Artefact { group: "org.apache.kafka", name: "kafka-tools", version: "4.1.2" };
/// The binding that makes Kafka's logger silent.
const LOG: Artefact = Artefact { group: "org.slf4j", name: "slf4j-simple", version: "1.7.36" };
/// A cluster's id has 22 letters.
const CLUSTER_ID_BYTES: usize = 11;
const CONFIGURATION: &str = "server.properties";

pub(crate) struct Kafka;

impl Server for Kafka {
    fn name(&self) -> &'static str {
        "kafka"
    }

    fn variable(&self) -> &'static str {
        "POSTRIDER_TEST_KAFKA_URL"
    }

    fn missing(&self, home: &Home) -> Vec<Package> {
        let mut missing = BROKER.missing(&home.packages);
        if server_program("java").is_none() {
            missing.push(Package { name: "default-jre-headless", units: &[] });
        }
        missing
    }

    fn prepare(&self, room: &Room<'_>) -> Result<(), String> {
        let configuration =
            room.write(CONFIGURATION, &configuration(room.entry, room.folder().join("data")))?;
        let mut format = java(room, "kafka.tools.StorageTool")?;
        format
            .args(["format", "--cluster-id", &random_hex(CLUSTER_ID_BYTES)?, "--config"])
            .arg(&configuration);
        room.prepare(format)
    }

    fn launch(&self, room: &Room<'_>) -> Result<String, String> {
        let mut server = java(room, "kafka.Kafka")?;
        server.arg(room.folder().join(CONFIGURATION));
        room.launch(server)?;
        Ok(BROKER.version.to_owned())
    }

    /// Asks for the API versions, as every client does first.
    fn ready(&self, room: &Room<'_>) -> Result<(), String> {
        const API_VERSIONS: i16 = 18;
        let mut request = Vec::new();
        request.extend(API_VERSIONS.to_be_bytes());
        request.extend(0_i16.to_be_bytes()); // the version of the request
        request.extend(1_i32.to_be_bytes()); // its number
        request.extend((-1_i16).to_be_bytes()); // no name of the client
        let length = i32::try_from(request.len()).map_err(|error| error.to_string())?;

        let mut wire = Wire::connect(room.entry.port)?;
        wire.send(&[&length.to_be_bytes(), request.as_slice()].concat())?;
        let _length: [u8; 4] = wire.receive()?;
        let number = i32::from_be_bytes(wire.receive()?);
        let error = i16::from_be_bytes(wire.receive()?);
        if (number, error) == (1, 0) { Ok(()) } else { Err(format!("It answers with the error {error}.")) }
    }

    /// Their names in Kafka's own distribution.
    fn clients(&self, home: &Home) -> Result<Vec<Client>, String> {
        let libraries = TOOLS.install_with(&[LOG], &home.packages)?.join("*").display().to_string();
        let java = server_program("java").ok_or("java is not here.")?;
        let quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn";
        let client = |name, class| {
            Client::new(name, &java, &["-Xmx256m", "-XX:+UseSerialGC", quiet, "-cp", &libraries, class])
        };
        Ok(vec![
            client("kafka-topics.sh", "org.apache.kafka.tools.TopicCommand"),
            client("kafka-console-consumer.sh", "org.apache.kafka.tools.consumer.ConsoleConsumer"),
        ])
    }

    fn url(&self, entry: &Entry) -> String {
        format!("kafka://127.0.0.1:{}", entry.port)
    }
}

fn java(room: &Room<'_>, class: &str) -> Result<Command, String> {
    let libraries = BROKER.install_with(&[LOG], &room.home.packages)?;
    let mut command = room.command(&server_program("java").ok_or("java is not here.")?);
    command.args(["-Xmx384m", "-XX:+UseSerialGC", "-cp"]).arg(libraries.join("*")).arg(class);
    Ok(command)
}

fn configuration(entry: &Entry, data: PathBuf) -> String {
    let Entry { port, inner_port, .. } = entry;
    format!(
        "process.roles=broker,controller\n\
         node.id=1\n\
         controller.quorum.voters=1@127.0.0.1:{inner_port}\n\
         listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{inner_port}\n\
         advertised.listeners=PLAINTEXT://127.0.0.1:{port}\n\
         controller.listener.names=CONTROLLER\n\
         listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n\
         log.dirs={data}\n\
         offsets.topic.replication.factor=1\n\
         offsets.topic.num.partitions=1\n\
         transaction.state.log.replication.factor=1\n\
         transaction.state.log.min.isr=1\n\
         transaction.state.log.num.partitions=1\n\
         share.coordinator.state.topic.replication.factor=1\n\
         share.coordinator.state.topic.min.isr=1\n\
         group.initial.rebalance.delay.ms=0\n\
         auto.create.topics.enable=false\n",
        data = data.display(),
    )
}
