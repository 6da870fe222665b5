use clap::{Args, Subcommand};
use serde::Serialize;
use shared::domain::Environment;
use shared::providers::Provider;
use shared::service::SealingSettings;
use shared::store::{self, Audit, EndpointRow, NewEndpoint};
use uuid::Uuid;

use super::Context;
use super::error::{CtlError, Exit};
use super::output::{optional, table, time};
use super::reason::Reason;
use super::secret::SecretSource;

#[derive(Debug, Subcommand)]
pub(super) enum Endpoints {
    /// Register an endpoint with its first signing secret
    Add(Box<Add>),
    /// Show every endpoint
    List,
}

#[derive(Debug, Args)]
pub(super) struct Add {
    /// stripe, standard or revenuecat
    provider: Provider,
    /// The endpoint's name in its URL: /webhooks/<provider>/<slug>
    #[arg(value_parser = slug)]
    slug: String,
    /// The account, at the provider, of events that name none
    #[arg(long, value_parser = account)]
    account: String,
    /// A further account whose events may come here, such as a connected one; may be repeated
    #[arg(long, value_name = "ACCOUNT", value_parser = account)]
    other_account: Vec<String>,
    /// production or sandbox: the environment of events that do not say
    #[arg(long, default_value = "production", value_parser = environment)]
    environment: Environment,
    /// How far the signed time may be from our clock; else what the provider recommends
    #[arg(long, value_parser = clap::value_parser!(i32).range(1..=86_400))]
    tolerance_seconds: Option<i32>,
    /// 409 or 200: the answer when a known event id comes with other content
    #[arg(long, default_value = "409", value_parser = mismatch_status)]
    mismatch_status: i16,
    #[command(flatten)]
    secret: SecretSource,
    /// For the audit log
    #[arg(long, default_value = "new endpoint")]
    reason: Reason,
    #[command(flatten)]
    sealing: SealingSettings,
}

/// The database holds slugs to the same pattern.
pub(super) fn slug(text: &str) -> Result<String, &'static str> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let fits = text.bytes().all(|byte| plain(byte) || byte == b'-' || byte == b'_');
    if fits && text.len() <= 63 && text.bytes().next().is_some_and(plain) {
        Ok(text.to_owned())
    } else {
        Err("a slug has 1 to 63 lower-case letters, digits, '-' or '_', and begins with a letter or digit")
    }
}

fn account(text: &str) -> Result<String, &'static str> {
    if text.is_empty() || text.ends_with(":sandbox") {
        Err("an account is the provider's id of it; for play money say --environment sandbox")
    } else {
        Ok(text.to_owned())
    }
}

fn environment(text: &str) -> Result<Environment, &'static str> {
    let known = [Environment::Production, Environment::Sandbox];
    known.into_iter().find(|known| known.as_str() == text).ok_or("an environment is production or sandbox")
}

fn mismatch_status(text: &str) -> Result<i16, &'static str> {
    match text {
        "409" => Ok(409),
        "200" => Ok(200),
        _ => Err("the answer to a mismatch is 409 or 200"),
    }
}

#[derive(Serialize)]
struct Added {
    id: Uuid,
    provider: Provider,
    slug: String,
    path: String,
}

impl Endpoints {
    pub fn run(self, context: &Context) -> Result<Exit, CtlError> {
        match self {
            Endpoints::Add(add) => add.run(context),
            Endpoints::List => list(context),
        }
    }
}

impl Add {
    fn run(self, context: &Context) -> Result<Exit, CtlError> {
        let secret = self.secret.read(self.provider)?;
        let sealer = self.sealing.sealer()?;
        let actor = context.actor()?;
        let others: Vec<&str> = self.other_account.iter().map(String::as_str).collect();
        let new = NewEndpoint {
            provider: self.provider,
            slug: &self.slug,
            account: &self.account,
            other_accounts: &others,
            environment: self.environment,
            tolerance_seconds: self.tolerance_seconds,
            mismatch_status: self.mismatch_status,
        };
        let audit = Audit { actor: &actor, reason: self.reason.as_str() };
        let id = store::add_endpoint(&mut *context.connection()?, &sealer, audit, &new, &secret)?;
        let path = format!("/webhooks/{}/{}", self.provider, self.slug);
        let added = Added { id, provider: self.provider, slug: self.slug, path };
        context.print("endpoints.add", &[added], |added| {
            let path = added.first().map_or("", |added| added.path.as_str());
            format!("added; the provider is to send to {path}, which the ingress knows within a few seconds")
        })?;
        Ok(Exit::Done)
    }
}

fn list(context: &Context) -> Result<Exit, CtlError> {
    let rows = store::list_endpoints(&mut *context.connection()?)?;
    const HEADINGS: [&str; 9] =
        ["PROVIDER", "SLUG", "ACCOUNT", "OTHER ACCOUNTS", "ENVIRONMENT", "ACTIVE", "KEYS", "MISMATCH", "CREATED"];
    context.print("endpoints.list", &rows, |rows| table(&HEADINGS, rows, cells))?;
    Ok(Exit::Done)
}

fn cells(row: &EndpointRow) -> Vec<String> {
    let others = Some(row.other_accounts.join(" ")).filter(|others| !others.is_empty());
    vec![
        row.provider.clone(),
        row.slug.clone(),
        row.account.clone(),
        optional(others),
        row.environment.clone(),
        if row.active { "yes" } else { "no" }.to_owned(),
        row.active_keys.to_string(),
        row.mismatch_status.to_string(),
        time(row.created_at),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slug_is_what_a_url_and_the_database_take() {
        let longest = "a".repeat(63);
        for good in ["demo", "0-eu_west", longest.as_str()] {
            assert!(slug(good).is_ok(), "{good}");
        }
        let too_long = "a".repeat(64);
        for bad in ["", "-x", "_x", "Demo", "a/b", "ä", too_long.as_str()] {
            assert!(slug(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_account_does_not_carry_our_own_mark_for_play_money() {
        assert!(account("acct_1").is_ok());
        assert!(account("").is_err());
        assert!(account("acct_1:sandbox").is_err());
    }
}
