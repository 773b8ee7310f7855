//! Holds the arrows between the crates: the parsers of other tools' files know nobody, `formats`
//! knows them, `capture` and `replay` know only `formats`, the command knows all three.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

fn arrows() -> BTreeMap<String, BTreeSet<String>> {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--no-deps",
            "--offline",
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let name = |value: &Value| value["name"].as_str().expect("a name").to_owned();
    let members: BTreeSet<String> = packages.iter().map(name).collect();
    let depends_on = |package: &Value| {
        let dependencies = package["dependencies"].as_array().expect("dependencies");
        dependencies
            .iter()
            .map(name)
            .filter(|name| members.contains(name))
            .collect()
    };
    packages
        .iter()
        .map(|package| (name(package), depends_on(package)))
        .collect()
}

#[test]
fn crates_depend_only_downwards() {
    let arrows = arrows();
    let expected = [
        (
            "iotape",
            vec!["iotape-capture", "iotape-formats", "iotape-replay"],
        ),
        // Tests of capture play sessions and traces with the parsers' encoders.
        (
            "iotape-capture",
            vec!["blktrace-parse", "etl-parse", "iotape-formats"],
        ),
        ("blktrace-parse", vec![]),
        ("etl-parse", vec![]),
        ("iotape-formats", vec!["blktrace-parse", "etl-parse"]),
        ("iotape-replay", vec!["iotape-formats"]),
    ];
    let expected: BTreeMap<String, BTreeSet<String>> = expected
        .into_iter()
        .map(|(name, below)| {
            (
                name.to_owned(),
                below.into_iter().map(str::to_owned).collect(),
            )
        })
        .collect();
    assert_eq!(arrows, expected);
}
