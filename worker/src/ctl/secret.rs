use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use shared::providers::{Provider, check_secret};
use zeroize::Zeroizing;

use super::error::CtlError;

/// More than any provider's secret, in bytes.
const LONGEST: u64 = 4096;

/// Where a secret comes from. Never an argument: the process list shows those to everybody.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct SecretSource {
    /// A file that holds the provider's signing secret and nothing else; - is standard input
    #[arg(long, value_name = "FILE")]
    secret_file: PathBuf,
}

impl SecretSource {
    /// Reads the secret and checks that it can be one of the provider's.
    pub fn read(&self, provider: Provider) -> Result<Zeroizing<Vec<u8>>, CtlError> {
        let from_input = self.secret_file == Path::new("-");
        let file = if from_input { "standard input".to_owned() } else { self.secret_file.display().to_string() };
        let text = if from_input { read(io::stdin().lock()) } else { File::open(&self.secret_file).and_then(read) };
        let text = text.map_err(|error| CtlError::SecretFile { file: file.clone(), kind: error.kind() })?;
        if u64::try_from(text.len()).is_ok_and(|length| length <= LONGEST) {
            Ok(check_secret(provider, &text)?)
        } else {
            Err(CtlError::SecretTooLong { file })
        }
    }
}

fn read(from: impl Read) -> io::Result<Zeroizing<String>> {
    let mut text = Zeroizing::new(String::new());
    from.take(LONGEST + 1).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use shared::providers::SecretError;

    use super::*;

    fn secret_of(content: &[u8]) -> Result<Zeroizing<Vec<u8>>, CtlError> {
        let name = format!("webhookctl-secret-{}", uuid::Uuid::now_v7());
        let file = std::env::temp_dir().join(name);
        std::fs::write(&file, content).unwrap();
        let secret = SecretSource { secret_file: file.clone() }.read(Provider::Stripe);
        std::fs::remove_file(file).unwrap();
        secret
    }

    #[test]
    fn the_line_end_of_a_file_is_not_part_of_the_secret() {
        assert_eq!(*secret_of(b"whsec_0123456789abcdef\n").unwrap(), b"whsec_0123456789abcdef");
        assert_eq!(*secret_of(b"whsec_0123456789abcdef\r\n").unwrap(), b"whsec_0123456789abcdef");
    }

    #[test]
    fn what_cannot_be_a_secret_is_refused_and_not_repeated() {
        assert!(matches!(secret_of(b"\n"), Err(CtlError::Secret(SecretError::Empty))));
        let error = secret_of(b"sk_live_0123456789abcdef\n").unwrap_err();
        assert!(matches!(error, CtlError::Secret(SecretError::ApiKey)));
        assert!(!error.to_string().contains("0123456789"), "{error}");
        assert!(matches!(secret_of(&[b'x'; 5000]), Err(CtlError::SecretTooLong { .. })));
        assert!(matches!(secret_of(&[0xff; 32]), Err(CtlError::SecretFile { kind: io::ErrorKind::InvalidData, .. })));
    }

    #[test]
    fn a_missing_file_is_named() {
        let source = SecretSource { secret_file: PathBuf::from("/no/such/file") };
        let error = source.read(Provider::Stripe).unwrap_err();
        assert!(error.to_string().starts_with("/no/such/file cannot be read"), "{error}");
    }
}
