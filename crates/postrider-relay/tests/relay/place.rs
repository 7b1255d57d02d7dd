//! A folder of its own, a receiver, and the program itself.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU16, AtomicUsize, Ordering::Relaxed},
        mpsc,
    },
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode, Uri},
};
use serde_json::Value;
use sqlx::{ConnectOptions, SqliteConnection, sqlite::SqliteConnectOptions};

use crate::time::ended_within;

/// Longer than anything here takes.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// A folder that is gone when the test is over.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let name = format!("postrider-relay-{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// A SQLite database with our tables, and a connection to it.
    pub(crate) async fn database(&self) -> SqliteConnection {
        let path = self.path("shop.db");
        let store = postrider::sqlite::SqliteStore::connect(path.to_str().unwrap()).await.unwrap();
        postrider::Store::migrate(&store).await.unwrap();
        store.close().await;
        SqliteConnectOptions::new().filename(path).connect().await.unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A plain INSERT, as any program could do it.
pub(crate) async fn insert(database: &mut SqliteConnection, event_type: &str, key: &str, payload: &str) {
    sqlx::query("INSERT INTO postrider_event (event_type, ordering_key, payload) VALUES (?, ?, ?)")
        .bind(event_type)
        .bind(key)
        .bind(payload)
        .execute(database)
        .await
        .unwrap();
}

/// One request that arrived.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

/// An HTTP server that keeps what it is sent, and answers as it is told.
#[derive(Clone)]
pub(crate) struct Receiver {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<Request>>>,
    status: Arc<AtomicU16>,
}

impl Receiver {
    pub(crate) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let receiver = Self { url, requests: Arc::default(), status: Arc::new(AtomicU16::new(200)) };
        let router = Router::new().fallback(answer).with_state(receiver.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        receiver
    }

    pub(crate) fn answers(&self, status: u16) {
        self.status.store(status, Relaxed);
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// The payloads that were taken, in the order of their arrival.
    pub(crate) fn payloads(&self) -> Vec<Value> {
        let arrays = self.requests().into_iter().filter_map(|request| request.body.as_array().cloned());
        arrays.flatten().collect()
    }
}

async fn answer(State(receiver): State<Receiver>, uri: Uri, headers: HeaderMap, body: Bytes) -> StatusCode {
    let status = StatusCode::from_u16(receiver.status.load(Relaxed)).unwrap();
    if status.is_success() && !body.is_empty() {
        let body = serde_json::from_slice(&body).unwrap();
        receiver.requests.lock().unwrap().push(Request { path: uri.path().to_owned(), headers, body });
    }
    status
}

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_postrider"));
    command.env_remove("POSTRIDER_LOG").env_remove("POSTRIDER_URL").env("NO_COLOR", "1");
    command
}

/// A relay that is not started yet.
pub(crate) fn run(config: &Path) -> Command {
    let mut command = program();
    command.arg("run").arg("--config").arg(config);
    command
}

/// Runs the program to its end.
pub(crate) fn postrider(args: &[&str]) -> Output {
    program().args(args).output().unwrap()
}

/// What a program said, all of it.
pub(crate) fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A command that goes on, and prints JSON on its stdout.
pub(crate) struct Program {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Program {
    pub(crate) fn start(args: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = program();
        command.args(args).envs(variables.iter().copied());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = mpsc::sync_channel(10_000);
        std::thread::spawn(move || {
            stdout.lines().map_while(Result::ok).for_each(|line| _ = sender.send(line))
        });
        Self { child, lines }
    }

    /// The next line.
    pub(crate) fn line(&mut self) -> Value {
        serde_json::from_str(&self.lines.recv_timeout(TIMEOUT).unwrap()).unwrap()
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(&self.child, name);
    }

    /// Waits for its end, and gives its exit status.
    pub(crate) fn ended(&mut self) -> i32 {
        while let Ok(line) = self.lines.recv_timeout(TIMEOUT) {
            drop(line);
        }
        self.child.wait().unwrap().code().unwrap_or(-1)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Sends a signal to a process.
pub(crate) fn signal(child: &Child, name: &str) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap().success());
}

/// A relay that runs.
pub(crate) struct Relay {
    child: Child,
    lines: mpsc::Receiver<Value>,
    /// All that it has logged.
    pub(crate) log: Vec<Value>,
}

impl Relay {
    /// Starts it. Its configuration should make it log JSON.
    pub(crate) fn start(config: &Path, variables: &[(&str, &str)]) -> Self {
        Self::start_with(config, &[], variables)
    }

    /// Starts it with more arguments.
    pub(crate) fn start_with(config: &Path, more: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = run(config);
        command.args(more).envs(variables.iter().copied()).stdout(Stdio::null());
        Self::spawn(command)
    }

    /// Starts it. Nobody reads what it writes to its stdout, a pipe.
    pub(crate) fn start_with_stdout_unread(config: &Path) -> Self {
        let mut command = run(config);
        command.stdout(Stdio::piped());
        Self::spawn(command)
    }

    fn spawn(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (sender, lines) = mpsc::sync_channel(10_000);
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                let value = serde_json::from_str(&line).unwrap_or(Value::String(line));
                _ = sender.send(value);
            }
        });
        Self { child, lines, log: Vec::new() }
    }

    /// Waits for a line with this message, and gives its fields.
    pub(crate) fn until_logged(&mut self, message: &str) -> Value {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left);
            let line = line.unwrap_or_else(|_| panic!("{message:?} was not logged, but {:#?}", self.log));
            self.log.push(line.clone());
            if line["fields"]["message"].as_str().is_some_and(|text| text.contains(message)) {
                return line["fields"].clone();
            }
        }
    }

    /// The address of health and metrics.
    pub(crate) fn operations(&mut self) -> String {
        let fields = self.until_logged("health and metrics");
        format!("http://{}", fields["address"].as_str().unwrap())
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(&self.child, name);
    }

    /// Waits for its end for so long, and gives its exit status; none if it goes on.
    pub(crate) fn ended_within(&mut self, limit: Duration) -> Option<i32> {
        let status = ended_within(&mut self.child, limit);
        self.log.extend(self.lines.try_iter());
        status
    }

    /// Waits for its end, and gives its exit status.
    pub(crate) fn ended(&mut self) -> i32 {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => self.log.push(line),
                // It has closed its stderr, so it has ended.
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => panic!("the relay does not end: {:#?}", self.log),
            }
        }
        self.child.wait().unwrap().code().unwrap_or(-1)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Asks until the answer is right.
pub(crate) async fn eventually(what: &str, mut is: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    let mut ticks = tokio::time::interval(Duration::from_millis(10));
    while !is().await {
        assert!(Instant::now() < deadline, "it never came to this: {what}");
        ticks.tick().await;
    }
}

/// Status and body of a GET.
pub(crate) async fn get(url: &str, token: Option<&str>) -> (u16, String) {
    let (url, token) = (url.to_owned(), token.map(str::to_owned));
    // curl is no dependency, and a request is a few lines.
    let (address, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let authorization = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let request =
        format!("GET /{path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{authorization}\r\n");
    tokio::io::AsyncWriteExt::write_all(&mut stream, request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    tokio::io::AsyncReadExt::read_to_string(&mut stream, &mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}
