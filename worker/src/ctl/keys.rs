use std::fmt;
use std::str::FromStr;

use chrono::Utc;
use clap::{Args, Subcommand};
use serde::Serialize;
use shared::domain::Time;
use shared::providers::{Provider, UnknownProvider};
use shared::service::SealingSettings;
use shared::store::{self, Audit, KeyRow};

use super::Context;
use super::endpoints::slug;
use super::error::{CtlError, Exit};
use super::output::{optional_time, table, time};
use super::reason::Reason;
use super::secret::SecretSource;

#[derive(Debug, Subcommand)]
pub(super) enum Keys {
    /// Add a signing secret to an endpoint; the ones before it stay active
    Add(Add),
    /// Show every key by its fingerprint, never the secret
    List,
}

#[derive(Debug, Args)]
pub(super) struct Add {
    /// As <provider>/<slug>
    endpoint: EndpointName,
    #[command(flatten)]
    secret: SecretSource,
    /// For the audit log
    #[arg(long, default_value = "new signing key")]
    reason: Reason,
    #[command(flatten)]
    sealing: SealingSettings,
}

/// An endpoint, by what its URL says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EndpointName {
    pub provider: Provider,
    pub slug: String,
}

/// The text names no endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum EndpointNameError {
    #[error("an endpoint is named <provider>/<slug>, such as stripe/main")]
    Form,
    #[error(transparent)]
    Provider(#[from] UnknownProvider),
    #[error("{0}")]
    Slug(&'static str),
}

impl FromStr for EndpointName {
    type Err = EndpointNameError;

    fn from_str(text: &str) -> Result<Self, EndpointNameError> {
        let (provider, name) = text.split_once('/').ok_or(EndpointNameError::Form)?;
        Ok(EndpointName { provider: provider.parse()?, slug: slug(name).map_err(EndpointNameError::Slug)? })
    }
}

impl fmt::Display for EndpointName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.provider, self.slug)
    }
}

#[derive(Serialize)]
struct Added {
    provider: Provider,
    slug: String,
    version: i32,
}

impl Keys {
    pub fn run(self, context: &Context) -> Result<Exit, CtlError> {
        match self {
            Keys::Add(add) => add.run(context),
            Keys::List => list(context),
        }
    }
}

impl Add {
    fn run(self, context: &Context) -> Result<Exit, CtlError> {
        let EndpointName { provider, slug } = self.endpoint.clone();
        let secret = self.secret.read(provider)?;
        let sealer = self.sealing.sealer()?;
        let actor = context.actor()?;
        let audit = Audit { actor: &actor, reason: self.reason.as_str() };
        let version = store::add_key(&mut *context.connection()?, &sealer, audit, provider, &slug, &secret)?;
        context.print("keys.add", &[Added { provider, slug, version }], |_| {
            format!("added as version {version} of {}; the versions before it stay active", self.endpoint)
        })?;
        Ok(Exit::Done)
    }
}

fn list(context: &Context) -> Result<Exit, CtlError> {
    let rows = store::list_keys(&mut *context.connection()?)?;
    const HEADINGS: [&str; 7] = ["PROVIDER", "SLUG", "VERSION", "FINGERPRINT", "STATE", "ACTIVE FROM", "ACTIVE UNTIL"];
    let now = Utc::now();
    context.print("keys.list", &rows, |rows| table(&HEADINGS, rows, |row| cells(row, now)))?;
    Ok(Exit::Done)
}

fn cells(row: &KeyRow, now: Time) -> Vec<String> {
    vec![
        row.provider.clone(),
        row.slug.clone(),
        row.version.to_string(),
        row.fingerprint.clone(),
        state(row, now).to_owned(),
        time(row.active_from),
        optional_time(row.active_until),
    ]
}

fn state(row: &KeyRow, now: Time) -> &'static str {
    if row.active_from > now {
        "not yet"
    } else if row.active_until.is_some_and(|until| until <= now) {
        "retired"
    } else {
        "active"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_named_by_provider_and_slug() {
        let name: EndpointName = "stripe/main".parse().unwrap();
        assert_eq!(name, EndpointName { provider: Provider::Stripe, slug: "main".to_owned() });
        assert_eq!(name.to_string(), "stripe/main");
        assert_eq!("main".parse::<EndpointName>(), Err(EndpointNameError::Form));
        assert!(matches!("nobody/main".parse::<EndpointName>(), Err(EndpointNameError::Provider(_))));
        assert!(matches!("stripe/a/b".parse::<EndpointName>(), Err(EndpointNameError::Slug(_))));
    }
}
