use std::fmt;
use std::str::FromStr;

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

/// An ISO 4217 currency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Currency(iso_currency::Currency);

impl Currency {
    /// The upper-case ISO 4217 code.
    pub fn code(self) -> &'static str {
        self.0.code()
    }

    /// How many decimals ISO 4217 gives the currency's minor unit. Providers may differ: see their adapters.
    pub fn exponent(self) -> u32 {
        self.0.exponent().map_or(0, u32::from)
    }
}

impl FromStr for Currency {
    type Err = MoneyError;

    /// Accepts the code in either case. `XXX` and `XTS` are ISO's "no currency" and "test": not money.
    fn from_str(code: &str) -> Result<Self, MoneyError> {
        match iso_currency::Currency::from_code(&code.to_ascii_uppercase()) {
            Some(iso_currency::Currency::XXX | iso_currency::Currency::XTS) | None => Err(MoneyError::UnknownCurrency),
            Some(currency) => Ok(Currency(currency)),
        }
    }
}

impl TryFrom<String> for Currency {
    type Error = MoneyError;

    fn try_from(code: String) -> Result<Self, MoneyError> {
        code.parse()
    }
}

impl From<Currency> for String {
    fn from(currency: Currency) -> String {
        currency.code().to_owned()
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// An exact, non-negative amount in major units: 10.99 USD, 1099 KRW, 1.005 BHD.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Money {
    amount: Decimal,
    currency: Currency,
}

/// Why something is not an amount of money. The text never repeats the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MoneyError {
    #[error("the currency is not an ISO 4217 code")]
    UnknownCurrency,
    #[error("the amount is negative")]
    Negative,
    #[error("the amount is not a whole number of minor units")]
    NotMinorUnits,
    #[error("the amount is larger than a ledger amount can be")]
    TooLarge,
}

impl Money {
    /// Reads an amount in minor units from its own digits, never through a float.
    ///
    /// `exponent` is the number of decimals of the minor unit *at this provider*.
    pub fn from_minor_digits(digits: &str, exponent: u32, currency: Currency) -> Result<Self, MoneyError> {
        let unsigned = digits.strip_prefix('-').unwrap_or(digits);
        if unsigned.is_empty() || !unsigned.bytes().all(|b| b.is_ascii_digit()) {
            return Err(MoneyError::NotMinorUnits);
        }
        // 18 digits of minor units are a thousand times the world's money; i64 is also what every provider's API holds.
        let minor: i64 = digits.parse().map_err(|_| MoneyError::TooLarge)?;
        if minor < 0 {
            return Err(MoneyError::Negative);
        }
        let amount = Decimal::try_new(minor, exponent).map_err(|_| MoneyError::TooLarge)?;
        Ok(Money { amount: amount.normalize(), currency })
    }

    /// Reads an amount in major units from its own digits, such as `4.99`, never through a float.
    ///
    /// `exponent` is the number of decimals that the currency has at this provider; more is refused, not rounded.
    pub fn from_major_digits(digits: &str, exponent: u32, currency: Currency) -> Result<Self, MoneyError> {
        let unsigned = digits.strip_prefix('-').unwrap_or(digits);
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, "0"));
        let digits_only = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if !digits_only(whole) || !digits_only(fraction) {
            return Err(MoneyError::NotMinorUnits);
        }
        let amount: Decimal = digits.parse().map_err(|_| MoneyError::TooLarge)?;
        let amount = amount.normalize();
        if amount.is_sign_negative() && !amount.is_zero() {
            return Err(MoneyError::Negative);
        }
        if amount.scale() > exponent {
            return Err(MoneyError::NotMinorUnits);
        }
        if amount > Decimal::from(i64::MAX) {
            return Err(MoneyError::TooLarge);
        }
        Ok(Money { amount, currency })
    }

    pub fn zero(currency: Currency) -> Self {
        Money { amount: Decimal::ZERO, currency }
    }

    /// What is left after taking `other` away, at least nothing. An amount in another currency takes nothing away.
    pub fn less(self, other: Money) -> Self {
        let taken = if other.currency == self.currency { other.amount } else { Decimal::ZERO };
        Money { amount: (self.amount - taken).max(Decimal::ZERO).normalize(), currency: self.currency }
    }

    /// The amount in major units, without trailing zeros, so that equal amounts print alike.
    pub fn amount(self) -> Decimal {
        self.amount
    }

    pub fn currency(self) -> Currency {
        self.currency
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minor(digits: &str, exponent: u32, code: &str) -> Result<String, MoneyError> {
        Money::from_minor_digits(digits, exponent, code.parse()?).map(|m| m.amount().to_string())
    }

    #[test]
    fn minor_units_become_major_units_exactly() {
        assert_eq!(minor("1099", 2, "usd").unwrap(), "10.99");
        assert_eq!(minor("10000", 0, "KRW").unwrap(), "10000");
        assert_eq!(minor("1005", 3, "bhd").unwrap(), "1.005");
        assert_eq!(minor("9007199254740993", 2, "USD").unwrap(), "90071992547409.93");
        assert_eq!(minor("9223372036854775807", 2, "USD").unwrap(), "92233720368547758.07");
    }

    #[test]
    fn anything_else_is_refused_and_never_rounded() {
        assert_eq!(minor("9223372036854775808", 2, "USD"), Err(MoneyError::TooLarge));
        assert_eq!(minor("-5", 2, "USD"), Err(MoneyError::Negative));
        for odd in ["", "-", "1.0", "5e3", "0x10", " 5", "5,000", "5000abc", "+5", "٣"] {
            assert_eq!(minor(odd, 2, "USD"), Err(MoneyError::NotMinorUnits), "{odd:?}");
        }
    }

    #[test]
    fn major_units_are_read_digit_by_digit() {
        let major = |digits: &str, exponent| {
            Money::from_major_digits(digits, exponent, "USD".parse()?).map(|m| m.amount().to_string())
        };
        assert_eq!(major("4.99", 2).unwrap(), "4.99");
        assert_eq!(major("4.990", 2).unwrap(), "4.99");
        assert_eq!(major("0", 0).unwrap(), "0");
        assert_eq!(major("-0.00", 2).unwrap(), "0");
        assert_eq!(major("98.9009", 2), Err(MoneyError::NotMinorUnits));
        assert_eq!(major("10000.5", 0), Err(MoneyError::NotMinorUnits));
        assert_eq!(major("-1", 2), Err(MoneyError::Negative));
        assert_eq!(major("99999999999999999999", 2), Err(MoneyError::TooLarge));
        assert_eq!(major(&"9".repeat(99), 2), Err(MoneyError::TooLarge));
        for odd in ["", ".", "1.", ".5", "1e3", "1,0", " 1", "+1", "1.0.0", "NaN"] {
            assert_eq!(major(odd, 2), Err(MoneyError::NotMinorUnits), "{odd:?}");
        }
    }

    #[test]
    fn only_iso_currencies_are_currencies() {
        assert_eq!("Usd".parse::<Currency>().unwrap().code(), "USD");
        for odd in ["", "XXX", "MUSD", "₩", "US", "usd "] {
            assert_eq!(odd.parse::<Currency>(), Err(MoneyError::UnknownCurrency), "{odd:?}");
        }
    }
}
