//! A check that is not in the macro's list would never run.

use std::{fs, path::Path};

#[test]
fn every_check_of_the_suite_is_in_the_list_of_the_macro() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/conformance");
    let list = fs::read_to_string(folder.join("suite.rs")).expect("the list");
    let mut checks = 0;
    for file in fs::read_dir(&folder).expect("the folder") {
        let path = file.expect("a file").path();
        if path.is_dir() {
            continue; // the suite for sinks has a list of its own
        }
        let text = fs::read_to_string(path).expect("text");
        let lines = text.lines().filter_map(|line| line.strip_prefix("pub async fn "));
        for name in lines.filter_map(|line| line.split_once("<H").map(|(name, _)| name)) {
            assert!(list.lines().any(|line| line.trim() == name), "{name} is not in suite.rs");
            checks += 1;
        }
    }
    assert!(checks > 80, "only {checks} checks were found");
}
