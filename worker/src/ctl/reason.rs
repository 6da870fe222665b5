use std::fmt;
use std::str::FromStr;

/// The fewest characters of a reason. The database refuses less, too.
const SHORTEST: usize = 8;

/// Why a person does something, in words that help whoever reads the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reason(String);

/// The text does not explain anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a reason has at least {SHORTEST} characters; write what a colleague needs to know tomorrow")]
pub(super) struct ReasonTooShort;

impl FromStr for Reason {
    type Err = ReasonTooShort;

    fn from_str(text: &str) -> Result<Self, ReasonTooShort> {
        let text = text.trim();
        if text.chars().count() < SHORTEST { Err(ReasonTooShort) } else { Ok(Reason(text.to_owned())) }
    }
}

impl Reason {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_counted_in_characters_without_the_blanks_around_it() {
        assert_eq!("  fixed it  ".parse(), Ok(Reason("fixed it".to_owned())));
        assert_eq!(" fixed   ".parse::<Reason>(), Err(ReasonTooShort));
        assert_eq!("원인해결됨".parse::<Reason>(), Err(ReasonTooShort));
        assert!("원인을 해결했음".parse::<Reason>().is_ok());
    }
}
