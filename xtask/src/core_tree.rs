//! The core has next to no external dependencies.

use crate::place::Place;
use std::collections::BTreeSet;

const DIRECT: [&str; 3] = ["getrandom", "serde", "serde_json"];
/// Crates in the whole tree, the core itself included.
const CRATES_MAX: usize = 12;

pub(crate) fn check(place: &Place) -> Result<String, String> {
    let tree = place.cargo_output(&["tree", "-p", "postrider-core", "-e", "normal", "--prefix", "depth"])?;
    check_tree(&tree)
}

/// `tree` has one crate a line, its depth in front: `1serde v1.0.229`.
fn check_tree(tree: &str) -> Result<String, String> {
    let mut direct = BTreeSet::new();
    let mut crates = BTreeSet::new();
    for line in tree.lines() {
        let (depth, of_crate) = line.split_at(line.chars().take_while(char::is_ascii_digit).count());
        let mut words = of_crate.split_whitespace();
        let (Some(name), Some(version)) = (words.next(), words.next()) else { continue };
        crates.insert((name, version));
        if depth == "1" {
            direct.insert(name);
        }
    }

    let listed: Vec<_> = crates.iter().map(|(name, version)| format!("{name} {version}")).collect();
    println!("{} crates: {}", crates.len(), listed.join(", "));
    if !direct.iter().eq(&DIRECT) {
        let direct: Vec<_> = direct.into_iter().collect();
        return Err(format!(
            "The core may depend on {} and nothing else (S3-3.1); it depends on {}.",
            DIRECT.join(", "),
            if direct.is_empty() { "nothing".to_owned() } else { direct.join(", ") }
        ));
    }
    if crates.len() > CRATES_MAX {
        return Err(format!(
            "The core's tree may have {CRATES_MAX} crates (S3-3.1); it has {}. Did a feature (serde's \
             `derive`?) come in?",
            crates.len()
        ));
    }
    Ok(format!("{} crates of at most {CRATES_MAX}", crates.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str = "\
0postrider-core v0.1.0 (/somewhere/crates/postrider-core)
1getrandom v0.4.3
2cfg-if v1.0.5
1serde v1.0.229
2serde_core v1.0.229
1serde_json v1.0.154
2serde_core v1.0.229 (*)
";

    #[test]
    fn a_crate_that_is_reached_twice_counts_once() {
        assert_eq!(check_tree(TREE), Ok("6 crates of at most 12".to_owned()));
    }

    #[test]
    fn a_fourth_direct_dependency_and_a_missing_one_fail() {
        // S3-3.1
        let why = check_tree(&format!("{TREE}1tokio v1.54.0\n")).unwrap_err();
        assert!(why.contains("it depends on getrandom, serde, serde_json, tokio"), "{why}");
        assert!(check_tree(&TREE.replace("1serde v", "2serde v")).is_err());
        assert!(check_tree("").is_err());
    }

    #[test]
    fn a_tree_that_grew_past_the_limit_fails() {
        let grown: String = (0..7).map(|i| format!("2extra{i} v1.0.0\n")).collect();
        assert!(check_tree(&format!("{TREE}{grown}")).unwrap_err().contains("it has 13"));
    }
}
