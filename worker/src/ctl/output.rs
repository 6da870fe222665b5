use std::borrow::Cow;
use std::ffi::OsString;
use std::io::{self, Write};

use chrono::{SecondsFormat, Utc};
use clap::ValueEnum;
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use serde::Serialize;
use shared::domain::Time;

use super::Context;
use super::error::CtlError;

/// What a cell says where there is nothing.
const NOTHING_THERE: &str = "-";

/// Whom the output is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    Table,
    Json,
}

/// The one shape of all JSON output. New fields may be added; a changed meaning gets a new number in the schema.
#[derive(Serialize)]
struct Envelope<'a, T> {
    schema: String,
    generated_at: Time,
    items: &'a [T],
}

#[derive(Serialize)]
struct ErrorEnvelope<'a> {
    error: ErrorWords<'a>,
}

#[derive(Serialize)]
struct ErrorWords<'a> {
    code: &'a str,
    message: &'a str,
}

impl Context {
    /// Prints `items`: as the text that `for_people` makes of them, or under the name `<noun>.<verb>` for programs.
    pub(super) fn print<T: Serialize>(
        &self,
        name: &str,
        items: &[T],
        for_people: impl FnOnce(&[T]) -> String,
    ) -> Result<(), CtlError> {
        let text = match self.output {
            Format::Table => for_people(items),
            Format::Json => {
                let envelope = Envelope { schema: format!("webhookctl.{name}/1"), generated_at: Utc::now(), items };
                serde_json::to_string(&envelope).map_err(|_| CtlError::Output(io::ErrorKind::InvalidData))?
            }
        };
        write(&text)
    }
}

fn write(text: &str) -> Result<(), CtlError> {
    match writeln!(io::stdout().lock(), "{}", text.trim_end()) {
        // Whoever reads has seen enough, as `head` does.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(CtlError::Output(error.kind())),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// An error for programs.
pub(super) fn error_json(code: &str, message: &str) -> String {
    // Two texts always serialise.
    serde_json::to_string(&ErrorEnvelope { error: ErrorWords { code, message } }).unwrap_or_default()
}

/// Whether JSON was asked for, seen without parsing: an error in the arguments is reported in the wanted form too.
pub(super) fn wants_json(arguments: &[OsString]) -> bool {
    let words: Vec<&str> = arguments.iter().filter_map(|word| word.to_str()).collect();
    let apart = words.windows(2).any(|pair| matches!(pair, ["-o" | "--output", "json"]));
    apart || words.iter().any(|word| matches!(*word, "-ojson" | "-o=json" | "--output=json"))
}

/// A table without lines, one row for each item.
pub(super) fn table<T>(headings: &[&str], items: &[T], cells: impl Fn(&T) -> Vec<String>) -> String {
    if items.is_empty() {
        return "(none)".to_owned();
    }
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(headings.iter().copied());
    for item in items {
        table.add_row(cells(item).iter().map(|cell| printable(cell).into_owned()));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.trim_fmt()
}

/// Names and values in two columns. What has no value is left out.
pub(super) fn fields(fields: &[(&str, Option<String>)]) -> String {
    let known = fields.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?)));
    let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines: Vec<String> = known.map(|(name, value)| format!("{name:width$}  {}", printable(value))).collect();
    lines.join("\n")
}

/// A part of a longer output, under its heading; nothing when the part is empty.
pub(super) fn section<T>(heading: &str, headings: &[&str], items: &[T], cells: impl Fn(&T) -> Vec<String>) -> String {
    if items.is_empty() { String::new() } else { format!("\n\n{heading}\n{}", table(headings, items, cells)) }
}

/// What came from outside must not move the cursor of a terminal, or break a line of the table.
fn printable(text: &str) -> Cow<'_, str> {
    if text.chars().any(char::is_control) {
        Cow::Owned(text.replace(char::is_control, "\u{fffd}"))
    } else {
        Cow::Borrowed(text)
    }
}

/// A cell of something that may be missing.
pub(super) fn optional(value: Option<impl ToString>) -> String {
    value.map_or_else(|| NOTHING_THERE.to_owned(), |value| value.to_string())
}

/// A time in UTC, to the second.
pub(super) fn time(time: Time) -> String {
    time.to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// A time that may not have come.
pub(super) fn optional_time(at: Option<Time>) -> String {
    optional(at.map(time))
}

/// A wait in words, from seconds: `42 s`, `7 min`, `3 h`, `2 d`.
pub(super) fn wait(seconds: i64) -> String {
    match seconds.max(0) {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_aligns_its_columns_and_ends_lines_without_blanks() {
        let rows = [("pi_1", "paid"), ("pi_longer", "-")];
        let text = table(&["PAYMENT", "STATUS"], &rows, |(id, status)| vec![(*id).to_owned(), (*status).to_owned()]);
        assert_eq!(text, "PAYMENT    STATUS\npi_1       paid\npi_longer  -");
    }

    #[test]
    fn an_empty_table_says_so() {
        assert_eq!(table::<&str>(&["ID"], &[], |_| Vec::new()), "(none)");
    }

    #[test]
    fn text_from_outside_cannot_command_the_terminal() {
        let text = table(&["ID"], &["a\u{1b}[2J\nb"], |id| vec![(*id).to_owned()]);
        assert_eq!(text, "ID\na\u{fffd}[2J\u{fffd}b");
        assert_eq!(fields(&[("type", Some("a\rb".to_owned())), ("none", None)]), "type  a\u{fffd}b");
    }

    #[test]
    fn an_error_for_programs_is_one_object() {
        let value: serde_json::Value = serde_json::from_str(&error_json("not_found", "no event \"x\"")).unwrap();
        assert_eq!(value, serde_json::json!({ "error": { "code": "not_found", "message": "no event \"x\"" } }));
    }

    #[test]
    fn json_is_recognised_in_every_way_it_can_be_asked_for() {
        let asked = |line: &str| wants_json(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        for line in ["x -o json", "x --output json y", "x -ojson", "x -o=json", "x --output=json"] {
            assert!(asked(line), "{line}");
        }
        for line in ["x", "x json", "x -o table json"] {
            assert!(!asked(line), "{line}");
        }
    }

    #[test]
    fn waits_are_told_in_the_unit_that_fits() {
        assert_eq!([-3, 119, 120, 7_200, 200_000].map(wait), ["0 s", "119 s", "2 min", "2 h", "2 d"]);
    }
}
