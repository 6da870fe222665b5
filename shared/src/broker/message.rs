use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::domain::Lane;

/// The version of the message format. A worker that meets a newer one buries it instead of guessing.
const VERSION: u8 = 1;

/// The message: which event to process. Everything else is in the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dispatch {
    /// The outbox row that is being published; also the AMQP `message_id`, by which confirms and returns are told apart.
    pub dispatch_id: Uuid,
    pub event_id: Uuid,
    pub lane: Lane,
}

/// The bytes are not a message of ours, or of a version that we do not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the message is not a dispatch of version 1")]
pub struct UnreadableMessage;

#[derive(Serialize, Deserialize)]
struct Wire<'a> {
    v: u8,
    event: Uuid,
    dispatch: Uuid,
    #[serde(borrow)]
    lane: Cow<'a, str>,
}

impl Dispatch {
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let wire =
            Wire { v: VERSION, event: self.event_id, dispatch: self.dispatch_id, lane: self.lane.as_str().into() };
        // Ids and a fixed word always serialise.
        serde_json::to_vec(&wire).unwrap_or_default()
    }

    /// Reads a message body.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, UnreadableMessage> {
        let wire: Wire<'_> = serde_json::from_slice(bytes).map_err(|_| UnreadableMessage)?;
        let lane = wire.lane.parse().map_err(|_| UnreadableMessage)?;
        if wire.v != VERSION {
            return Err(UnreadableMessage);
        }
        Ok(Dispatch { dispatch_id: wire.dispatch, event_id: wire.event, lane })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dispatch_survives_the_wire_and_nothing_else_is_taken_for_one() {
        let dispatch = Dispatch { dispatch_id: Uuid::from_u128(1), event_id: Uuid::from_u128(2), lane: Lane::Redrive };
        let bytes = dispatch.to_bytes();
        assert_eq!(Dispatch::from_bytes(&bytes), Ok(dispatch));
        let newer = String::from_utf8(bytes).unwrap().replace("\"v\":1", "\"v\":2");
        for odd in ["", "{}", "null", newer.as_str(), &newer.replace("redrive", "nowhere")] {
            assert_eq!(Dispatch::from_bytes(odd.as_bytes()), Err(UnreadableMessage), "{odd}");
        }
    }
}
