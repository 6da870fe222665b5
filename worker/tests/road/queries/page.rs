use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// What docs/LEDGER.md says.
pub struct Page {
    pub questions: Vec<Question>,
    /// The columns of each table, by its name.
    pub columns: BTreeMap<String, BTreeSet<String>>,
    pub reasons: BTreeSet<String>,
}

/// A query under its heading.
pub struct Question {
    pub heading: String,
    /// The parameters that the page gives an example of.
    parameters: BTreeSet<String>,
    pub indexes: Vec<String>,
    sql: String,
}

impl Page {
    pub fn read() -> Page {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/LEDGER.md");
        let text = std::fs::read_to_string(path).unwrap();
        let mut page = Page { questions: Vec::new(), columns: BTreeMap::new(), reasons: BTreeSet::new() };
        for chapter in text.split("\n## ").skip(1) {
            let (title, body) = chapter.split_once('\n').unwrap();
            for section in body.split("\n### ").skip(1) {
                let (heading, body) = section.split_once('\n').unwrap();
                match title {
                    "Tables" => {
                        let columns = first_cells(body).flat_map(quoted).collect();
                        page.columns.insert(quoted(heading).next().unwrap(), columns);
                    }
                    _ => page.questions.extend(Question::read(heading, body)),
                }
            }
            if title.starts_with("What needs review") {
                page.reasons.extend(first_cells(body).flat_map(quoted));
            }
        }
        assert_eq!(text.matches("```sql").count(), page.questions.len(), "every query has a heading of its own");
        page
    }
}

impl Question {
    fn read(heading: &str, body: &str) -> Option<Question> {
        let (before, rest) = body.split_once("```sql\n")?;
        let (sql, _) = rest.split_once("\n```").unwrap();
        let bullet = |name: &str| before.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        let examples = bullet("- Parameters: ").split(", ").filter_map(|pair| pair.split_once(" = "));
        Some(Question {
            heading: heading.to_owned(),
            parameters: examples.flat_map(|(name, _)| quoted(name)).collect(),
            indexes: quoted(bullet("- Index: ")).collect(),
            sql: sql.trim_end_matches(';').to_owned(),
        })
    }

    /// The query with its parameters filled in, as psql would do it.
    pub fn with(&self, value: impl Fn(&str) -> String) -> String {
        let mut sql = self.sql.clone();
        for name in &self.parameters {
            let variable = format!(":'{name}'");
            assert!(sql.contains(&variable), "\"{}\" has no parameter {name}", self.heading);
            sql = sql.replace(&variable, &format!("'{}'", value(name)));
        }
        assert!(!sql.contains(":'"), "\"{}\" explains only {:?}", self.heading, self.parameters);
        sql
    }
}

/// The first cell of every row of the tables in a text.
fn first_cells(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next())
}

/// What stands between backticks.
fn quoted(text: &str) -> impl Iterator<Item = String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned)
}
