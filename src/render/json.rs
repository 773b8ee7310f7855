//! JSON that may be shown on a terminal.

/// The same JSON, with the characters escaped that JSON lets stand and that control a terminal. They
/// are only in strings: nothing else has any but the ends of lines, which strings have escaped.
pub fn plain_json(json: String) -> String {
    let controls = |c: char| c.is_control() && c != '\n';
    let escape = |c: char| match controls(c) {
        true => format!("\\u{:04x}", u32::from(c)),
        false => c.to_string(),
    };
    match json.contains(controls) {
        true => json.chars().map(escape).collect(),
        false => json,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_no_character_that_controls_a_terminal() {
        let name = "a\u{9b}31m\u{7f}\u{1b}\nb";
        let json = serde_json::to_string_pretty(&[name]).unwrap();
        let plain = plain_json(json);
        assert_eq!(plain, "[\n  \"a\\u009b31m\\u007f\\u001b\\nb\"\n]");
        assert_eq!(serde_json::from_str::<[String; 1]>(&plain).unwrap(), [name]);
    }
}
