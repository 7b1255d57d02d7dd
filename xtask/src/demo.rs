//! The release build of the command, and a smoke run of its demo.

use crate::place::Place;
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::time::Duration;
use std::{env, fs, io::Read, thread};

const ARGUMENTS: [&str; 5] = ["demo", "--events", "2000", "--exit", "--json"];
/// A demo that takes longer is stuck.
const TIME_MAX: Duration = Duration::from_secs(120);

pub(crate) fn build(place: &Place) -> Result<String, String> {
    place.cargo(&["build", "--release", "-p", "postrider-relay", "--bin", "postrider"])
}

pub(crate) fn check(place: &Place) -> Result<String, String> {
    // Run alone, this step must not check an old build. After the build step this takes no time.
    build(place)?;
    let program = place.target.join("release").join(format!("postrider{}", env::consts::EXE_SUFFIX));
    // The demo leaves files in its working folder, so it does not get the checkout.
    let folder = place.target.join("xtask-demo");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(|error| format!("Cannot make {}: {error}", folder.display()))?;

    println!("$ postrider {}", ARGUMENTS.join(" "));
    let child = place
        .command(program)
        .args(ARGUMENTS)
        .current_dir(&folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("The postrider command could not start: {error}"))?;
    let printed = output_within(child, TIME_MAX)?;
    print!("{printed}");
    check_counts(&printed)
}

/// The child's output, if it succeeded in time.
fn output_within(mut child: Child, time_max: Duration) -> Result<String, String> {
    let mut stdout = child.stdout.take().ok_or("The child has no output.")?;
    let (send, receive) = mpsc::sync_channel(1);
    thread::spawn(move || {
        let mut printed = Vec::new();
        let read = stdout.read_to_end(&mut printed);
        let _ = send.send(read.map(|_| String::from_utf8_lossy(&printed).into_owned()));
    });
    let Ok(printed) = receive.recv_timeout(time_max) else {
        let _ = child.kill();
        let _ = child.wait();
        return Err(format!("It did not end within {} s.", time_max.as_secs()));
    };
    let printed = printed.map_err(|error| format!("Its output could not be read: {error}"))?;
    let status = child.wait().map_err(|error| format!("It cannot be waited for: {error}"))?;
    if status.success() { Ok(printed) } else { Err(format!("{printed}It ended with {status}.")) }
}

/// The last line is a JSON object with the counts of the run.
fn check_counts(printed: &str) -> Result<String, String> {
    let last = printed.trim_end().lines().next_back().unwrap_or_default().trim();
    if !(last.starts_with('{') && last.ends_with('}')) {
        return Err(format!("The last line is not a JSON object: {last:?}"));
    }
    let count = |name: &str| number(last, name).ok_or(format!("No number called {name:?} in {last}"));
    for name in ["lost", "out_of_order", "phantom"] {
        let found = count(name)?;
        if found != 0 {
            return Err(format!("{name} must be 0 and is {found}: {last}"));
        }
    }
    let rolled_back = count("rolled_back")?;
    if rolled_back == 0 {
        return Err(format!("Nothing was rolled back, so the run cannot show phantoms: {last}"));
    }
    Ok(format!("0 lost, 0 out of order, 0 phantom, {rolled_back} rolled back"))
}

/// The whole number after `"name":`.
fn number(json: &str, name: &str) -> Option<u64> {
    let (_, rest) = json.split_once(&format!("\"{name}\""))?;
    let value = rest.trim_start().strip_prefix(':')?.trim_start();
    let end = value.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(value.len());
    let (digits, after) = value.split_at(end);
    if after.starts_with(['.', 'e', 'E']) { None } else { digits.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"written":2000,"lost":0,"out_of_order": 0,"phantom":0,"rolled_back":12}"#;

    #[test]
    fn only_the_last_line_counts_and_all_four_numbers_must_be_there() {
        assert!(check_counts(&format!("starting\n{GOOD}\n")).is_ok());
        assert!(check_counts(&format!("{GOOD}\nbye\n")).is_err());
        assert!(check_counts("").is_err());
        for name in ["lost", "out_of_order", "phantom", "rolled_back"] {
            let why = check_counts(&GOOD.replace(name, "other")).unwrap_err();
            assert!(why.contains(name), "{why}");
        }
    }

    #[test]
    fn a_lost_reordered_or_invented_event_fails_and_so_does_a_run_without_rollbacks() {
        assert!(
            check_counts(&GOOD.replace("\"lost\":0", "\"lost\":1")).unwrap_err().contains("lost must be 0")
        );
        assert!(check_counts(&GOOD.replace("order\": 0", "order\": 3")).is_err());
        assert!(check_counts(&GOOD.replace("phantom\":0", "phantom\":10")).is_err());
        assert!(check_counts(&GOOD.replace(":12", ":0")).is_err());
    }

    #[test]
    fn a_number_is_whole_and_stands_right_after_its_name() {
        assert_eq!(number(r#"{"a":12,"b":-1,"c":0.5,"d":"0","e" : 7}"#, "a"), Some(12));
        let rest = ["b", "c", "d", "missing"].map(|name| number(r#"{"a":12,"b":-1,"c":0.5,"d":"0"}"#, name));
        assert_eq!(rest, [None; 4]);
        assert_eq!(number(r#"{"e" : 7}"#, "e"), Some(7));
    }

    #[cfg(unix)]
    #[test]
    fn a_child_that_hangs_or_fails_is_told_apart_from_one_that_ends_well() {
        let shell = |script: &str| {
            let mut command = std::process::Command::new("sh");
            command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
        };
        assert_eq!(output_within(shell("echo hello"), TIME_MAX), Ok("hello\n".to_owned()));
        assert!(output_within(shell("echo hello; exit 3"), TIME_MAX).unwrap_err().contains("hello"));
        // It waits for a line that never comes.
        assert!(output_within(shell("read line"), Duration::ZERO).unwrap_err().contains("did not end"));
    }
}
