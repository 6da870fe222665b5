//! RevenueCat's vocabulary.

use super::*;
