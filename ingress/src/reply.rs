use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{ALLOW, RETRY_AFTER};
use shared::intake::{Endpoint, Refusal};
use shared::store::Accepted;

/// Seconds after which a provider may try again when we are busy or away.
const RETRY_SECONDS: &str = "5";

/// The answer to a verified event that the store took.
pub(crate) fn accepted(endpoint: &Endpoint, accepted: Accepted) -> HttpResponse {
    let mismatch = StatusCode::from_u16(endpoint.mismatch_status).unwrap_or(StatusCode::CONFLICT);
    match accepted {
        // Exactly 200: some providers count every other success as a failure.
        Accepted::New => HttpResponse::Ok().json(Words { status: "accepted" }),
        Accepted::Replayed => HttpResponse::Ok().json(Words { status: "replayed" }),
        Accepted::Mismatch => HttpResponse::build(mismatch).json(Words { status: "payload_mismatch" }),
    }
}

/// The answer to a request that is refused. A connection whose request was not read to its end is closed.
pub(crate) fn refused(refusal: Refusal) -> HttpResponse {
    let status = StatusCode::from_u16(refusal.status()).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    let mut response = HttpResponse::build(status);
    match refusal {
        Refusal::Unavailable | Refusal::RateLimited => {
            response.insert_header((RETRY_AFTER, RETRY_SECONDS));
        }
        Refusal::Method => {
            response.insert_header((ALLOW, "POST"));
        }
        Refusal::TooLarge | Refusal::TooSlow | Refusal::Encoded | Refusal::BadRequest => {
            response.force_close();
        }
        _ => {}
    }
    response.json(Complaint { error: refusal.reason(), message: refusal.to_string() })
}

#[derive(serde::Serialize)]
struct Words {
    status: &'static str,
}

#[derive(serde::Serialize)]
struct Complaint {
    error: &'static str,
    message: String,
}
